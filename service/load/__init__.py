"""The load generator: arrivals, open and closed loops, a streaming client, and the report of a run.

It works against any server that speaks OpenAI's completions. It does not start a service and reads no telemetry.

Invariant: the room imports nothing of ours but `service.messages`.
"""
