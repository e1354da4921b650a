"""Which collectives may start, and in which order: ranks agree on it by the names of tensors.

Every rank announces what it wants (`CollectiveRequest`) to a coordinator on rank 0, which answers all of them once all
have come, or once they disagree (`CollectiveResponse`); responses reach every rank in one order. This is the scheme of
Horovod (Sergeev and Del Balso 2018, https://arxiv.org/abs/1802.05799, section 3), with no cycle to wait for.

Nothing here knows of tensors or frameworks.
"""

__all__ = []
