"""The API of a Kubernetes cluster: requests, errors as sentences, and watches that survive what a network does.

Nothing here depends on jobs of cloudtrain. lightkube, which is loaded when a connection is made, has the certificates,
tokens and passwords. The rest is our own, because no client library covers what our tests do to a server (compared:
lightkube 1.0, kubernetes 37, kr8s 0.20):

- Programs that print credentials: lightkube lacks version v1 of their protocol, client certificates and expiry;
  kubernetes lacks client certificates and a time limit; kr8s does not renew credentials.
- Watches: none continues after a cut connection and notices one that is dead. kubernetes repeats a lost history once,
  kr8s from where it was lost; no one but kubernetes reads bookmarks.
- Several files in KUBECONFIG: only kubernetes merges them.
- Importing kubernetes takes two to five times as long as this package with lightkube, and 126 MB on disk.
"""
