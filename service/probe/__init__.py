"""The probe: what is not ours, seen as the service is: functions of a Ray Serve application, and whole servers.

`batchscope` is the public name of what an application imports: that folder is installed as a package of its own. A
server is seen through a relay: its requests are passed on, and what it reports of itself becomes telemetry.

Invariant: what goes wrong here harms no request of the application, and of a server none that does not pass here.
"""
