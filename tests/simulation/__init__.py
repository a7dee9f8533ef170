"""The service's protocol without Ray: its own classes in simulated processes, on one clock, driven by one seed."""
