"""The pods of a run's trials, by the API of a cluster. ``kubeconfig``: how it is reached; ``client``: what it is asked;
``watch``: the pods and what happens to them; ``pod``: the content of one; ``seen``: the status; ``sweep``: removes what
is left, the only change that is made in a cluster."""
