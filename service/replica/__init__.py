"""One replica and the hub: the life of requests, the runner of batches, HTTP answers, telemetry, the settings board.

Starting Ray and what is private to it stand in `ray_serve`, computing in `engine`, forming batches in `batching`.

Invariant: only here does a request change its state, and only by `GenerationRequest.enter`, which asserts the order.
"""
