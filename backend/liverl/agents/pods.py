"""How the pods of Harbor's sandboxes are found."""

from __future__ import annotations

# Of every pod; its value is harbor_agent.pod_name_prefix. LiveRL's pages also name harbor-managed, which no pod has.
POD_LABEL = "harbor-run"
LIST_PODS = f"kubectl get pods -l {POD_LABEL}"
