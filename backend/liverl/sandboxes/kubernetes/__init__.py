"""Pods of a run's trials, read from the API of a cluster: ``kubeconfig`` finds it, ``client`` asks, ``watch`` goes on
asking, ``pod`` reads a pod, ``seen`` makes the status. Nothing here changes a cluster."""
