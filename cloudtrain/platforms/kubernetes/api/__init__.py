"""The API of a Kubernetes cluster: requests, readable errors, and watches that survive failures of the network.

Nothing here depends on jobs of cloudtrain. lightkube, which is loaded for the first connection, handles certificates,
tokens and passwords. The rest is our own, because no client library handles all the failures of a server that our tests
cause. This compares the sources of lightkube 1.0.1, kubernetes 37.0 and kr8s 0.20.15:

- Programs that print credentials: lightkube lacks version v1 of their protocol, client certificates and their expiry;
  kubernetes lacks client certificates. None of the libraries limits the time of the program.
- Watches: lightkube waits forever on a dead connection, and resumes after a lost history without a list, so that
  it misses deletions. kubernetes and kr8s end when the connection is cut, and after a lost history request the same one
  again.
- KUBECONFIG with several files: lightkube reads it as the name of a single file.
- Start time: `import kubernetes` takes 0.2 to 0.7 s and 43 MB, this package with lightkube 0.12 s and 31 MB.
"""
