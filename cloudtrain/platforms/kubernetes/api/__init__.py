"""The API of a Kubernetes cluster: requests, errors as sentences, and watches that survive what a network does.

Nothing here depends on jobs of cloudtrain. lightkube, which is loaded when a connection is made, has the certificates,
tokens and passwords. The rest is our own, because no client library covers what our tests do to a server. Compared by
their source: lightkube 1.0.1, kubernetes 37.0, kr8s 0.20.15.

- Programs that print credentials: lightkube lacks version v1 of their protocol, client certificates and their expiry;
  kubernetes lacks client certificates. None sets a time limit for the program.
- Watches: lightkube waits forever on a connection that is dead, and resumes after a lost history without a list, so
  that deletions are missed. kubernetes and kr8s end with a cut connection, and after a lost history request the same
  one again.
- KUBECONFIG with several files: lightkube reads it as the name of one.
- Start time: `import kubernetes` takes 0.2 to 0.7 s and 43 MB, this package with lightkube 0.12 s and 31 MB.
"""
