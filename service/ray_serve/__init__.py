"""All that touches Ray beyond its documented API: environment, clusters, application, doors, router, redeployer.

A deployment's own code stands in `replica`; a process that is started or ended stands in `launch`.

Invariant: no other room names a private part of Ray, and each private name has a canary test.
"""
