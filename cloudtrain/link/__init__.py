"""Authenticated connections between the processes of one job: the job secret, the handshake, sealed messages.

secret     the job secret, and the keys that are derived from it
handshake  each side proves to the other that it has a key, without sending it
sealing    messages that only the two ends can write; each arrives once, in order
tls        encryption between machines, with the job's certificate
gate       lets a server with one thread admit peers, at a bounded cost for those that cannot prove themselves
"""
