"""Negotiation: the ranks agree by tensor name on which collectives start, and in which order.

Every rank sends a `CollectiveRequest` to the coordinator on rank 0. Once all ranks have done so, or two of them
disagree, the coordinator sends a `CollectiveResponse`. Responses reach all ranks in the same order. This is Horovod's
scheme (Sergeev and Del Balso 2018, https://arxiv.org/abs/1802.05799, section 3), without its fixed cycle time.

This package depends on no tensor library.
"""

__all__ = []
