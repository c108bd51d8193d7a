"""Signatures of Kubernetes pods, as kubectl, events and its Python client print them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="pod-evicted",
        component="host",
        role="cause",
        pattern=(
            r"The node was low on resource: (?P<resource>[\w-]{1,40})\.(?: Threshold quantity: (?:\S{1,40}), "
            r"available: "
            r"(?:\S{1,40})\.)?"
        ),
        needle="The node was low on resource:",
        title="Kubernetes evicted a pod: its node is low on {resource}",
        cause="The node had less {resource} left than its kubelet keeps free, so the pod was ended.",
        fix=(
            "Give the pods a request and a limit for {resource}, clean the node (images, logs, emptyDir), or "
            "run fewer "
            "pods on it."
        ),
        command="kubectl describe node NODE | grep -A8 Conditions",
        alive=True,
        gone=True,
        source="kubelet eviction; kubernetes issue 91600",
        fires=(
            "Message:        The node was low on resource: ephemeral-storage. Threshold quantity: 2146223340, "
            "available: "
            "1883424Ki. Container main was using 10304Ki, request is 10Mi."
        ),
        spares="Message:        The node was ready; no resource was low: ephemeral-storage 40Gi",
    ),
    Signature(
        id="pod-oom-killed",
        component="host",
        role="cause",
        pattern=(
            r"(?:Reason: {1,20}|\breason[\"']?: ?[\"']?|^ {0,8}\S{1,120} {1,20}\d/\d {1,20}|\bStatus: "
            r"{1,20})OOMKilled\b"
        ),
        needle="OOMKilled",
        title="A pod's container was killed: its memory limit is reached",
        cause="The container used more memory than the limit of its pod, and the kernel killed it (exit code 137).",
        fix=(
            "Raise resources.limits.memory of the pod (harbor_agent.environment_override_memory_mb for "
            "sandboxes), or "
            "let it use less."
        ),
        command="kubectl describe pod POD | grep -A6 'Last State'",
        alive=True,
        gone=True,
        source="Kubernetes container status",
        fires="    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
        spares="metrics: OOMKilled 0, restarts 0",
    ),
    Signature(
        id="pod-image-pull",
        component="host",
        role="cause",
        pattern=r"(?:Error: |Reason: {1,20}|\d/\d {1,20}|reason[\"']?: ?[\"']?)(?:Err)?ImagePull"
        r"(?:BackOff)?\b",
        needle="ImagePull",
        title="Kubernetes cannot pull the image of a pod",
        cause="The image's name or tag is wrong, the registry wants credentials, or it cannot be reached.",
        fix="Read the events of the pod for the registry's answer; correct the image or its imagePullSecrets.",
        command="kubectl describe pod POD | grep -A10 Events",
        severity="warning",
        alive=True,
        source="kubelet",
        fires="  Warning  Failed     4m    kubelet    Error: ErrImagePull",
        spares="imagePullPolicy: Always; Reason: Pulled, ImagePull took 2 s",
    ),
    Signature(
        id="kubernetes-forbidden",
        component="host",
        role="cause",
        pattern=(
            r'is forbidden: User \\?"(?P<user>[^"\\\n]{1,200})\\?" cannot (?P<verb>\w{1,20}) resource '
            r'\\?"(?P<resource>[\w/]{1,60})'
        ),
        needle="is forbidden: User",
        title="Kubernetes does not let this account {verb} {resource}",
        cause="The account {user} has no role that allows it to {verb} {resource} in that namespace.",
        fix="Bind a role with that right to the account (kubectl create rolebinding), or use another namespace.",
        command="kubectl auth can-i {verb} {resource} --as={user}",
        alive=True,
        source="Kubernetes RBAC",
        fires=(
            'pods is forbidden: User "system:serviceaccount:rl:runner" cannot create resource "pods" in API '
            'group "" in '
            'the namespace "sandboxes"'
        ),
        spares='User "system:serviceaccount:rl:runner" can create resource "pods"',
    ),
    Signature(
        id="kubernetes-quota",
        component="host",
        role="cause",
        pattern=r"is forbidden: exceeded quota: (?P<quota>[\w.-]{1,80}), requested: (?P<asked>[^\n,]{1,80})",
        needle="exceeded quota:",
        title="The quota {quota} of the namespace is used up",
        cause="A pod asked for {asked}, which is more than the quota {quota} leaves.",
        fix="Run fewer pods at once (harbor_runtime.num_workers), ask for less per pod, or have the quota raised.",
        command="kubectl describe quota",
        alive=True,
        source="Kubernetes admission",
        fires=(
            'pods "task-1" is forbidden: exceeded quota: compute, requested: requests.memory=8Gi, used: '
            "requests.memory=60Gi, limited: requests.memory=64Gi"
        ),
        spares='pods "task-1" is within quota: compute, requested: requests.memory=8Gi',
    ),
    Signature(
        id="kubernetes-api-exception",
        component="host",
        role="consequence",
        pattern=r"kubernetes\.client\.exceptions\.ApiException: \((?P<status>\d{3})\)",
        needle="kubernetes.client.exceptions.ApiException: (",
        title="The Kubernetes API refused a request ({status})",
        fix="Read the message in the body of the answer, printed below it.",
        severity="warning",
        of=("kubernetes-forbidden", "kubernetes-quota"),
        source="kubernetes-client/python",
        fires="kubernetes.client.exceptions.ApiException: (403)",
        spares="kubernetes.client.exceptions.ApiException handled",
    ),
    Signature(
        id="pod-mount",
        component="host",
        role="cause",
        pattern=r"Failed(?:Mount|AttachVolume) {1,40}[^\n]{0,60}kubelet",
        needle="kubelet",
        title="A pod cannot mount one of its volumes",
        cause=(
            "The volume, its claim, secret or storage server is missing or does not answer, so that the pod "
            "never starts."
        ),
        fix="Read the events of the pod, and look at the claim and the storage server that it names.",
        command="kubectl describe pod POD | grep -A10 Events; kubectl get pvc",
        severity="warning",
        alive=True,
        source="kubelet",
        fires=(
            "  Warning  FailedMount  2m (x10 over 21m)  kubelet  Unable to attach or mount volumes: timed out "
            "waiting for the condition"
        ),
        spares="  Normal   Mounted  2m  kubelet  FailedMount of 21m ago is over",
    ),
    Signature(
        id="pod-crash-loop",
        component="host",
        role="cause",
        pattern=r"(?:\d/\d {1,20}|Reason: {1,20})CrashLoopBackOff\b",
        needle="CrashLoopBackOff",
        title="A pod's container ends again and again",
        cause="The container exits soon after each start, and Kubernetes waits longer before each further one.",
        fix="Read what its last instance wrote: kubectl logs POD --previous.",
        command="kubectl logs POD --previous; kubectl describe pod POD | grep -A6 'Last State'",
        severity="info",
        alive=True,
        source="kubelet",
        fires="proxy-6b7c8d9f   0/1     CrashLoopBackOff   7 (30s ago)   12m",
        spares="proxy-6b7c8d9f   1/1     Running; no CrashLoopBackOff   0   12m",
    ),
)
