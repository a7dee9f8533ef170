"""The probe: functions of somebody else's Ray Serve application, seen as the service of this package is.

`batchscope` is the public name of what is here: the folder of that name is installed as a package of its own.

Invariant: what goes wrong here harms no request of the application.
"""
