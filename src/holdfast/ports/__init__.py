"""The contracts between what Holdfast does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance.
One conformance suite per protocol (``tests/conformance``) runs over every engine. Moments are whole microseconds
since 1970. Each method is one transaction: when it returns, its effect is durable; when it raises, there is none. In a
request that must be done once (``ports/coordination.py``) it is a part of one, and durable with the request's reply.
"""
