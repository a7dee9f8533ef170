"""Jobs in, progress out: decoding batches of text, or calling a function once a batch.

`engine.model` fetches, converts, loads and runs models. Queues, batches' formation and HTTP stand elsewhere.

Invariant: imports neither Ray nor HTTP, and one compute thread owns the device.
"""
