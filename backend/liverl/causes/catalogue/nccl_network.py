"""Signatures of NCCL's networks and time-outs."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nccl-locked-memory",
        component="nccl",
        role="cause",
        pattern=(
            r"Call to ibv_(?P<call>reg_mr\w{0,20}|create_\w{1,20}|alloc_\w{1,20}) failed with error "
            "Cannot allocate memory"
        ),
        needle=" failed with error Cannot allocate memory",
        title="NCCL could not register memory for InfiniBand (locked memory limit)",
        cause=("ibv_{call} needs locked memory, and the limit of this process (ulimit -l) is too low."),
        fix=(
            "Set ulimit -l unlimited for the service, container (--ulimit memlock=-1) or Slurm "
            "(PropagateResourceLimits), or leave InfiniBand out: NCCL_IB_DISABLE=1."
        ),
        command="ulimit -l",
        source="github.com/NVIDIA/nccl-tests/issues/206",
        fires=(
            "node1:4321:4355 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with "
            "error Cannot allocate memory"
        ),
        spares=(
            "node1:4321:4355 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_modify_qp failed with "
            "error Network is unreachable"
        ),
    ),
    Signature(
        id="nccl-ib-path",
        component="nccl",
        role="cause",
        pattern=r"Call to ibv_modify_qp failed with (?:error )?(?P<why>[^\n,]{1,80})",
        needle="Call to ibv_modify_qp failed with ",
        title="NCCL's InfiniBand path between hosts does not work: {why}",
        cause=(
            "NCCL chose network cards that cannot reach each other ({why}): another subnet, a wrong "
            "GID index for RoCE, or a port that is down."
        ),
        fix=(
            "Check ibstat and show_gids on both hosts; choose cards with NCCL_IB_HCA and the RoCE v2 "
            "index with NCCL_IB_GID_INDEX (often 3), or set NCCL_IB_DISABLE=1."
        ),
        command="ibstat; show_gids; echo $NCCL_IB_HCA $NCCL_IB_GID_INDEX",
        source="github.com/NVIDIA/nccl-tests/issues/185",
        fires=(
            "dgx3:2152176:2152300 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed "
            "with error Network is unreachable"
        ),
        spares="dgx3:2152176:2152300 [0] NCCL INFO Call to ibv_modify_qp done",
    ),
    Signature(
        id="nccl-ib-completion",
        component="nccl",
        role="waits",
        pattern=(
            r"NET/IB\s{0,2}: Got completion (?:from peer \S{1,80} )?with (?:status=|error "
            r")(?P<status>\d{1,3})"
        ),
        needle=": Got completion ",
        title="NCCL got no answer from another rank over InfiniBand (status {status})",
        cause=(
            "A transfer was not acknowledged (status {status}; 12 is a time-out): the other rank's process "
            "ended, or a cable, port, switch or host failed, or congestion is too high."
        ),
        fix=(
            "Look first whether a process on the host that the line names ended before; else check ibstat and the "
            "ports' error counters on both hosts; raise NCCL_IB_TIMEOUT (22) and NCCL_IB_RETRY_CNT (7) for congestion."
        ),
        command="ibstat; perfquery -x",
        source="NCCL src/transport/net_ib.cc",
        fires=(
            "node3:77:99 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
            "10.0.0.3<38321> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
        ),
        spares=("node3:77:99 [2] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB, completion from peer is polled"),
    ),
    Signature(
        id="nccl-ib-port",
        component="nccl",
        role="cause",
        pattern=(
            r"NET/IB\s{0,2}: Got async event : (?P<what>port error|\w[\w ]{1,40} error|local "
            "catastrophic error|device fatal)"
        ),
        needle=": Got async event : ",
        title="An InfiniBand port or card of this host failed: {what}",
        cause=(
            "The network card reported {what}: a cable, a port or switch went down for a moment, or "
            "the card failed."
        ),
        fix=("Look at ibstat and ibqueryerrors for the port that flaps; have cable and switch port checked."),
        command="ibstat; ibqueryerrors",
        source="NCCL src/transport/net_ib.cc",
        fires=("gpu3:77:131 [0] transport/net_ib.cc:91 NCCL WARN NET/IB : Got async event : port error"),
        spares="gpu3:77:131 [0] NCCL INFO NET/IB : Got async event thread, port 1",
    ),
    Signature(
        id="nccl-cut",
        component="nccl",
        role="waits",
        pattern=(
            r"NCCL WARN Net : Call to (?:recv|send)\w{0,4} (?:from|to) (?P<peer>\S{1,80}) failed : "
            "(?P<why>Connection timed out|No route to host|Network is unreachable|Broken pipe)"
        ),
        needle="NCCL WARN Net : Call to ",
        title="NCCL lost the connection to {peer}: {why}",
        cause="The host {peer} or the network to it did not answer any more.",
        fix=(
            "Look whether that host and its processes run, and at the network (packet loss, a "
            "firewall that drops idle connections)."
        ),
        command="ping -c 3 HOST; ip -s link",
        source="NCCL src/misc/socket.cc",
        fires=(
            "worker-23:83:2526 [0] misc/socket.cc:503 NCCL WARN Net : Call to recv from "
            "10.0.0.9<41468> failed : Connection timed out"
        ),
        spares=(
            "worker-23:83:2526 [0] misc/socket.cc:503 NCCL WARN Net : Call to recv from "
            "10.0.0.9<41468> failed : Connection reset by peer"
        ),
    ),
    *family(
        Signature(
            id="nccl-no-route",
            component="nccl",
            role="cause",
            pattern=(
                r"Connect to (?P<peer>\S{1,80}) (?:failed|returned)[^\n]{0,40}(?:No route to host|Network "
                "is unreachable|Connection timed out|Software caused connection abort)"
            ),
            needle="Connect to ",
            title="NCCL cannot reach another host: {peer}",
            cause=(
                "A connection between ranks failed: a firewall, an interface that leads nowhere "
                "(docker0, lo), or different networks."
            ),
            fix=(
                "Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the interface that joins the hosts, "
                "and open all ports between them."
            ),
            command="ip -br addr; ip route; echo $NCCL_SOCKET_IFNAME",
            source="NCCL src/misc/socket.cc",
            fires=(
                "node1:31:77 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to "
                "172.17.0.1<42313> failed : No route to host"
            ),
            spares="node1:31:77 [0] NCCL INFO socketStartConnect: Connect to 10.0.0.1<42313> done",
        ),
        Text(
            id="nccl-no-route-call",
            pattern=(
                r"Call to connect (?:to (?P<peer>\S{1,80}) )?(?:failed|returned)[^\n]{0,20}(?:No route to "
                "host|Network is unreachable|Connection timed out)"
            ),
            needle="Call to connect ",
            title="NCCL cannot reach another host",
            fires="node1:31:77 [0] misc/socket.cc:484 NCCL WARN Net : Call to connect returned Connection timed out",
            spares="node1:31:77 [0] NCCL INFO Call to connect done",
        ),
    ),
    Signature(
        id="nccl-truncated",
        component="nccl",
        role="cause",
        pattern=(
            r"NCCL WARN [^\n]{0,60}Message truncated : received (?P<has>\d{1,15}) bytes instead of "
            r"(?P<wanted>\d{1,15})"
        ),
        needle="Message truncated : received ",
        title="Ranks exchange different sizes: {has} bytes instead of {wanted}",
        cause=(
            "Two ranks are at different collectives or have tensors of different sizes: one skipped "
            "a step, or their data differ."
        ),
        fix=(
            "Look for a branch that not all ranks take, and for uneven batches; "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL names the collective."
        ),
        command="export TORCH_DISTRIBUTED_DEBUG=DETAIL",
        source="NCCL src/transport/net.cc",
        fires=(
            "node0:51:90 [0] transport/net_socket.cc:493 NCCL WARN NET/Socket : Message truncated : "
            "received 1024 bytes instead of 256"
        ),
        spares="node0:51:90 [0] NCCL INFO NET/Socket : received 1024 bytes",
    ),
    Signature(
        id="nccl-nvls",
        component="nccl",
        role="cause",
        pattern=r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory",
        needle="Failed to bind NVLink SHARP (NVLS) Multicast memory",
        title="NCCL could not use NVLink SHARP (NVLS): the fabric manager or NVSwitch",
        cause=(
            "NCCL could not set up multicast between the GPUs: the fabric manager has a fault, or "
            "the container may not use it."
        ),
        fix="Set NCCL_NVLS_ENABLE=0, and have nvidia-fabricmanager restarted on the host.",
        command="export NCCL_NVLS_ENABLE=0; systemctl status nvidia-fabricmanager",
        source="NCCL src/transport/nvls.cc",
        fires=(
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 "
            "'the operation cannot be performed in the present state'."
        ),
        spares="INFO NVLink SHARP (NVLS) Multicast memory is bound",
    ),
    Signature(
        id="nccl-nvls-call",
        component="nccl",
        role="cause",
        pattern=(
            r"NCCL WARN Cuda failure (?P<code>\d{0,6}) ?'(?P<what>the operation cannot be performed "
            "in the present state)'"
        ),
        needle="'the operation cannot be performed in the present state'",
        title="NCCL could not use NVLink SHARP (NVLS): the fabric manager or NVSwitch",
        cause=(
            "NCCL could not set up multicast between the GPUs ({what}): the fabric manager has a "
            "fault, or the container may not use it."
        ),
        fix="Set NCCL_NVLS_ENABLE=0, and have nvidia-fabricmanager restarted on the host.",
        command="export NCCL_NVLS_ENABLE=0; systemctl status nvidia-fabricmanager",
        source="github.com/NVIDIA/nccl/issues/1788",
        fires=(
            "node004:27907:27907 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation "
            "cannot be performed in the present state'"
        ),
        spares=(
            "node004:27907:27907 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 802 'system not "
            "yet initialized'"
        ),
    ),
    Signature(
        id="nccl-plugin",
        component="nccl",
        role="cause",
        pattern=(r"NET/OFI (?P<why>Couldn't open \w{1,40}|Unable to \w[\w ]{1,60}|Failed to \w[\w ]{1,60})"),
        needle="NET/OFI ",
        title="NCCL's plugin for the network (libfabric, EFA) failed: {why}",
        cause=(
            "The libfabric plugin could not use the network card: {why}. NCCL goes back to sockets "
            "on this rank, or fails."
        ),
        fix=(
            "Check fi_info -p efa and the locked memory limit (ulimit -l unlimited); give the "
            "container the EFA devices, the same plugin version on all hosts, or take the plugin out "
            "(NCCL_NET=Socket)."
        ),
        command="fi_info -p efa; ulimit -l",
        source="aws-ofi-nccl",
        fires=(
            "algo-1:17778:17848 [5] nccl_ofi_ofiutils_init_connection:274 NCCL WARN NET/OFI Couldn't "
            "open CQ. RC: -22, ERROR: Invalid argument"
        ),
        spares="algo-1:17778:17848 [5] NCCL INFO NET/OFI Selected provider is efa",
    ),
    Signature(
        id="nccl-heartbeat",
        component="nccl",
        role="waits",
        pattern="Heartbeat monitor timed out! Process will be terminated after dumping debug info",
        needle="Heartbeat monitor timed out! Process will be terminated after dumping debug info",
        title="A CUDA or NCCL call of this rank hung, and torch ended the process",
        cause=(
            "torch's watchdog made no progress: a CUDA or NCCL call blocks, another rank is gone, or "
            "a thread holds Python's lock in a CUDA call."
        ),
        fix=(
            "Find the rank that printed an error before this or none at all; py-spy dump shows where "
            "it hangs. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC raises the limit, if the call was only slow."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        fires=(
            "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! "
            "Process will be terminated after dumping debug info. workMetaList_.size()=103"
        ),
        spares=(
            "[rank1]:[I ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor started; debug info off"
        ),
    ),
    Signature(
        id="nccl-heartbeat-signal",
        component="nccl",
        role="waits",
        pattern=(
            "Received a dump signal due to a collective timeout from (?P<rank>(?:this local "
            r")?rank(?: \d{1,6})?)"
        ),
        needle="Received a dump signal due to a collective timeout from ",
        title="A collective timed out, and torch ended all ranks (reported by {rank})",
        cause=("{rank} waited in a collective until its time-out: another rank hangs, is slow or ended."),
        fix=(
            "Read the line of that rank (Watchdog caught collective operation timeout), and find the "
            "rank that printed none."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        fires=(
            "[rank3]:[E1103 10:00:00.000000 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID "
            "0(default_pg) Rank 3] Received a dump signal due to a collective timeout from rank 0 "
            "and we will try our best to dump the debug info."
        ),
        spares="[rank3]:[I1103 ProcessGroupNCCL.cpp] collective timeout is 600 s for rank 0",
    ),
)
