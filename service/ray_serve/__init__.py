"""All that touches Ray beyond its documented API: environment, patches, clusters, application, doors, redeployer.

A deployment's own code stands in `replica`; a process that is started or ended stands in `launch`.

Invariant: no other room names a private part of Ray, and each private name has a canary test.
"""
