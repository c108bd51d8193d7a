"""Signatures of Kubernetes: events of pods and nodes, and what its API answers."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="pod-no-address",
            component="host",
            role="cause",
            alive=True,
            pattern=r"failed to assign an IP address to container",
            needle="failed to assign an IP address to container",
            title="A pod did not start: the node has no free IP address",
            cause="The node's or subnet's addresses are used up by other pods.",
            fix="Run fewer pods per node, spread them over more nodes, or widen the pods' subnet.",
            command="kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | wc -l",
            source="amazon-vpc-cni",
            fires=(
                'Failed to create pod sandbox: networkPlugin cni failed to set up pod "a" network: add cmd: '
                "failed to assign an IP address to container"
            ),
            spares="INFO assigned an IP address to container",
        ),
        Text(
            "pod-no-address-range",
            "no IP addresses available in range set",
            r"no IP addresses available in range set",
            "plugin failed (add): no IP addresses available in range set: 10.244.1.1-10.244.1.254",
            "INFO IP addresses available in range set",
            "cni host-local",
        ),
    ),
    Signature(
        id="pod-network",
        component="host",
        role="cause",
        alive=True,
        pattern=(
            r"Failed to create pod sandbox: (?![^\n]{0,900}?(?:failed to assign an IP|no IP addresses available))"
        ),
        needle="Failed to create pod sandbox: ",
        title="A pod did not start: the node could not set up its network or sandbox",
        cause="The container runtime or the network plugin (CNI) of the node failed before any container ran.",
        fix="Read the end of the event; restart the network plugin's pod on that node, or drain the node.",
        command="kubectl describe pod POD; kubectl get pods -n kube-system -o wide | grep NODE",
        source="kubelet",
        fires=(
            "Warning  FailedCreatePodSandBox  2m  kubelet  Failed to create pod sandbox: netplugin failed with "
            "no error message"
        ),
        spares="INFO the pod sandbox was created, none failed",
    ),
    Signature(
        id="pod-container-config",
        component="host",
        role="cause",
        alive=True,
        pattern=(
            r"(?P<kind>secret|configmap|serviceaccount|persistentvolumeclaim) "
            r"\\?\"(?P<name>[\w.-]{1,120})\\?\" not found"
        ),
        needle='" not found',
        title="A pod needs the {kind} {name}, which does not exist",
        cause="It was not made in the pod's namespace, or has another name.",
        fix="Make it in that namespace, or correct its name in the pod.",
        command="kubectl get {kind} -n NAMESPACE",
        source="kubelet",
        fires='Error: secret "hf-token" not found',
        spares='INFO secret "hf-token" found',
    ),
    *family(
        Signature(
            id="pod-container-create",
            component="host",
            role="cause",
            alive=True,
            pattern=(
                r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>CreateContainerConfigError)\b"
            ),
            needle="CreateContainerConfigError",
            title="A pod's container cannot be made: {why}",
            cause=(
                "The node refused its configuration: a missing secret or mount, a wrong command, or an invalid "
                "image name."
            ),
            fix="The pod's events say which; correct the pod's specification.",
            command="kubectl describe pod POD | tail -20",
            source="kubelet",
            fires="      Reason:       CreateContainerConfigError",
            spares="INFO no CreateContainerConfigError here",
        ),
        Text(
            "pod-container-made",
            "CreateContainerError",
            r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>CreateContainerError)\b",
            "      Reason:       CreateContainerError",
            "INFO no CreateContainerError here",
        ),
        Text(
            "pod-container-run",
            "RunContainerError",
            r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>RunContainerError)\b",
            "      Reason:       RunContainerError",
            "INFO no RunContainerError here",
        ),
        Text(
            "pod-container-cannot",
            "ContainerCannotRun",
            r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>ContainerCannotRun)\b",
            "      Reason:       ContainerCannotRun",
            "INFO no ContainerCannotRun here",
        ),
        Text(
            "pod-container-name",
            "InvalidImageName",
            r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>InvalidImageName)\b",
            "      Reason:       InvalidImageName",
            "INFO no InvalidImageName here",
        ),
        Text(
            "pod-container-never",
            "ErrImageNeverPull",
            r"(?:Reason: {1,20}|\d/\d {1,20}|with |reason[\"']?: ?[\"']?)(?P<why>ErrImageNeverPull)\b",
            "      Reason:       ErrImageNeverPull",
            "INFO no ErrImageNeverPull here",
        ),
    ),
    *family(
        Signature(
            id="pod-probe",
            component="host",
            role="cause",
            alive=True,
            slips=3,
            pattern=r"(?P<kind>Liveness|Startup) probe failed: (?P<why>[^\n]{1,200})",
            needle=" probe failed: ",
            title="Kubernetes restarts a container: its {kind} probe failed",
            cause="The container did not answer its probe in time ({why}).",
            fix=(
                "Look why it is slow or down at that time; raise the probe's timeoutSeconds, failureThreshold or "
                "startup delay."
            ),
            command="kubectl describe pod POD; kubectl logs POD --previous",
            source="kubelet",
            fires='Liveness probe failed: Get "http://10.0.0.7:8000/health": context deadline exceeded',
            spares="INFO Liveness probe passed",
        ),
        Text(
            "pod-probe-restart",
            ", will be restarted",
            r"Container (?P<why>\S{1,120}) failed (?P<kind>liveness|startup) probe, will be restarted",
            "Container proxy failed liveness probe, will be restarted",
            "INFO Container proxy will be restarted",
        ),
    ),
    Signature(
        id="pod-exit-killed",
        component="host",
        role="cause",
        alive=True,
        gone=True,
        pattern=r"Reason: {1,12}(?!OOMKilled)\w{1,40}\n {1,16}Exit Code: {1,12}137\b",
        needle="Exit Code:",
        title="A pod's container was killed (exit code 137)",
        cause="It got SIGKILL: it reached its memory limit (OOMKilled), or did not end in time after SIGTERM.",
        fix=(
            "If its reason is OOMKilled raise its memory limit; else give it more time "
            "(terminationGracePeriodSeconds)."
        ),
        command="kubectl describe pod POD | grep -A6 'Last State'",
        source="kubectl describe",
        fires="      Reason:       Error\n      Exit Code:    137",
        spares="      Reason:       OOMKilled\n      Exit Code:    137",
    ),
    *family(
        Signature(
            id="pod-deadline",
            component="host",
            role="cause",
            alive=True,
            gone=True,
            pattern=r"was active on the node longer than the specified deadline",
            needle="was active on the node longer than the specified deadline",
            title="Kubernetes ended a pod or job: its time limit is over",
            cause="activeDeadlineSeconds of the job or pod has passed.",
            fix="Raise activeDeadlineSeconds, or find why the work took longer.",
            command="kubectl get job JOB -o jsonpath='{{.spec.activeDeadlineSeconds}}'",
            source="kubelet",
            fires="Pod was active on the node longer than the specified deadline",
            spares="INFO the pod was active on the node",
        ),
        Text(
            "pod-deadline-reason",
            "DeadlineExceeded",
            r"Reason: {1,20}DeadlineExceeded",
            "      Reason:       DeadlineExceeded",
            "INFO DeadlineExceeded is a reason",
        ),
        Text(
            "job-deadline",
            "Job was active longer than specified deadline",
            r"Job was active longer than specified deadline",
            "Job was active longer than specified deadline",
            "INFO the Job was active",
        ),
    ),
    Signature(
        id="pod-preempted",
        component="host",
        role="cause",
        alive=True,
        gone=True,
        pattern=r"Preempted (?:by (?:a )?pod |in order to admit critical pod)",
        needle="Preempted ",
        title="Kubernetes removed a pod for one of higher priority",
        cause="The node had no room for a pod of a higher priority class.",
        fix="Give the run's pods a higher priorityClassName, or reserve nodes for them.",
        command="kubectl get events -A | grep -i preempt; kubectl get priorityclass",
        source="kube-scheduler",
        fires="Normal  Preempted  2m  default-scheduler  Preempted by pod 5f0c on node node-7",
        spares="INFO no pod was Preempted",
    ),
    *family(
        Signature(
            id="pod-refused-by-node",
            component="host",
            role="cause",
            alive=True,
            pattern=r"\b(?P<why>OutOf(?:cpu|memory|pods|ephemeral-storage|nvidia\.com/gpu))\b",
            needle="OutOf",
            title="A node refused a pod that was scheduled to it: {why}",
            cause=(
                "The node's free resources were not what the scheduler thought: another pod took them, or a "
                "device is lost."
            ),
            fix=(
                "Delete the pod so that it is scheduled again; check the device plugin and the node's "
                "allocatable resources."
            ),
            command="kubectl describe node NODE | grep -A12 Allocated",
            source="kubelet",
            fires="Warning  OutOfnvidia.com/gpu  3s  kubelet  Node didn't have enough resource: nvidia.com/gpu",
            spares="INFO OutOf nothing",
        ),
        Text(
            "pod-refused-admission",
            "UnexpectedAdmissionError",
            r"(?P<why>UnexpectedAdmissionError) ",
            "Warning  UnexpectedAdmissionError  3s  kubelet  Allocate failed due to no healthy devices present",
            "INFO UnexpectedAdmissionError, none",
        ),
        Text(
            "pod-refused-topology",
            "TopologyAffinityError",
            r"(?P<why>TopologyAffinityError) ",
            "Warning  TopologyAffinityError  3s  kubelet  Resources cannot be allocated",
            "INFO TopologyAffinityError, none",
        ),
    ),
    *family(
        Signature(
            id="volume-unbound",
            component="host",
            role="cause",
            alive=True,
            pattern=r"pod has unbound immediate PersistentVolumeClaims",
            needle="pod has unbound immediate PersistentVolumeClaims",
            title="A pod waits for its volume: the claim is not bound",
            cause="No volume fits the claim, or its storage class does not exist or cannot make one.",
            fix="See the claim's events; correct its storage class, size or access mode.",
            command="kubectl get pvc; kubectl describe pvc CLAIM; kubectl get storageclass",
            source="kube-scheduler",
            fires="pod has unbound immediate PersistentVolumeClaims. preemption: 0/4 nodes are available",
            spares="INFO the pod has its PersistentVolumeClaims",
        ),
        Text(
            "volume-attached-elsewhere",
            "Multi-Attach error for volume ",
            r"Multi-Attach error for volume \S{1,120}",
            'Multi-Attach error for volume "pvc-1f2e" Volume is already used by pod(s) trainer-0',
            "INFO no Multi-Attach error for volume",
            "attach-detach controller",
        ),
    ),
    Signature(
        id="node-runtime-silent",
        component="host",
        role="cause",
        alive=True,
        pattern=r"PLEG is not healthy: pleg was last seen active (?P<ago>[\w.]{1,20}) ago",
        needle="PLEG is not healthy: pleg was last seen active ",
        title="A node's container runtime does not answer",
        cause="The kubelet got no list of containers for {ago}: the runtime hangs or the node is overloaded.",
        fix="Check containerd and the node's load and disk; restart containerd, or drain the node.",
        command="systemctl status containerd kubelet; crictl ps; uptime",
        source="kubelet",
        fires=(
            '"Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m4.5s ago; '
            'threshold is 3m0s"'
        ),
        spares="INFO PLEG is healthy: pleg was last seen active 1s ago",
    ),
    *family(
        Signature(
            id="node-pressure",
            component="host",
            role="cause",
            alive=True,
            pattern=r"NodeHas(?:Disk|Memory|PID)Pressure",
            needle="NodeHas",
            title="A Kubernetes node runs out of disk, memory or process ids",
            cause="The kubelet evicts pods from it until enough is free.",
            fix="Free the resource on the node, set requests and limits that fit, or use a larger node.",
            command="kubectl describe node NODE | grep -A8 Conditions; df -h; free -g",
            source="kubelet",
            fires="Node gpu-3 status is now: NodeHasDiskPressure",
            spares="INFO NodeHasNoDiskPressure, no NodeHas",
        ),
        Text(
            "node-pressure-evicts",
            "must evict pod(s) to reclaim",
            r"must evict pod\(s\) to reclaim",
            'eviction_manager.go: "Eviction manager: must evict pod(s) to reclaim" resourceName="memory"',
            "INFO no need to evict pod(s) to reclaim",
        ),
    ),
    *family(
        Signature(
            id="kubernetes-api-refused",
            component="host",
            role="cause",
            alive=True,
            pattern=r"The connection to the server (?P<host>\S{1,200}) was refused",
            needle="The connection to the server ",
            title="kubectl does not reach the Kubernetes API at {host}",
            cause=(
                "No API server answers there: a wrong or missing kubeconfig (localhost:8080), or the cluster is "
                "down."
            ),
            fix="Set KUBECONFIG to the cluster's file, check the context, and that the API server runs.",
            command="kubectl config get-contexts; kubectl cluster-info",
            source="kubectl",
            fires="The connection to the server localhost:8080 was refused - did you specify the right host or port?",
            spares="INFO The connection to the server localhost:8080 was made",
        ),
        Text(
            "kubernetes-api-unable",
            "Unable to connect to the server: ",
            r"Unable to connect to the server: (?P<host>[^\n]{1,200})",
            "Unable to connect to the server: net/http: TLS handshake timeout",
            "INFO able to connect to the server",
        ),
    ),
    Signature(
        id="kubernetes-login",
        component="host",
        role="cause",
        alive=True,
        pattern=r"You must be logged in to the server",
        needle="You must be logged in to the server",
        title="Kubernetes does not know this login",
        cause="The token or certificate of the kubeconfig or service account is missing or has expired.",
        fix="Log in again (the cloud's get-credentials), or renew the service account's token.",
        command="kubectl auth whoami",
        source="kubectl",
        fires="error: You must be logged in to the server (Unauthorized)",
        spares="INFO logged in to the server",
    ),
    Signature(
        id="kubernetes-admission",
        component="host",
        role="cause",
        alive=True,
        pattern=r"admission webhook \\?\"(?P<name>[\w.-]{1,120})\\?\" denied the request: (?P<why>[^\n]{0,200})",
        needle="admission webhook ",
        title="A policy of the cluster refuses the object ({name})",
        cause="The cluster's rules forbid it: {why}.",
        fix="Change the object as the message says, or ask who runs the cluster for an exception.",
        source="kubernetes",
        fires=(
            'Error from server: admission webhook "validate.kyverno.svc-fail" denied the request: privileged is '
            "not allowed"
        ),
        spares='INFO admission webhook "validate.kyverno.svc" allowed the request',
    ),
    Signature(
        id="etcd-slow",
        component="host",
        role="cause",
        alive=True,
        pattern=(
            r"etcdserver: (?P<why>request timed out|mvcc: database space exceeded|no leader|too many "
            r"requests|leader changed)"
        ),
        needle="etcdserver: ",
        title="Kubernetes' database (etcd) fails: {why}",
        cause="etcd is overloaded, full, or has lost its leader, so that the API cannot store anything.",
        fix="Make fewer objects at once; check etcd's disk and size, and defragment it.",
        command="kubectl get --raw /readyz?verbose",
        source="etcd",
        fires="Error from server: etcdserver: request timed out",
        spares="INFO etcdserver: the request is done",
    ),
    Signature(
        id="pod-gone",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"pods \\?\"(?P<name>[\w.-]{1,200})\\?\" not found",
        needle='" not found',
        title="The pod {name} does not exist (any more)",
        cause="It was deleted, evicted or preempted, or its node was removed.",
        fix="See the namespace's events for why it went.",
        command="kubectl get events -A | grep {name}",
        source="kubernetes",
        fires='Error from server (NotFound): pods "sandbox-17" not found',
        spares='INFO pods "sandbox-17" found',
    ),
)
