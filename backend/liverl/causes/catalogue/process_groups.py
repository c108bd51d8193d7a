"""Signatures of torch's process groups, rendezvous and gloo."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="collective-mismatch",
        component="torch",
        role="cause",
        pattern=r"Detected mismatch between collectives on ranks\. (?P<what>[^\n]{1,200})",
        needle="Detected mismatch between collectives on ranks. ",
        title="Ranks run different collectives",
        cause="Not all ranks do the same: {what}",
        fix=(
            "Look for a branch that not all ranks take (an early return, an if on the rank, uneven batches)."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
        fires=(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
            "collective: CollectiveFingerPrint(OpType=ALLREDUCE), but Rank 1 is running collective: "
            "BROADCAST"
        ),
        spares="INFO no mismatch between collectives on ranks",
    ),
    Signature(
        id="store-barrier",
        component="torch",
        role="waits",
        pattern=(
            "Timed out initializing process group in store based barrier on rank: "
            r"(?P<rank>\d{1,6}),[^\n]{0,120}world_size=(?P<world>\d{1,6}), "
            r"(?:worker_count|num_workers_joined)=(?P<has>\d{1,6})"
        ),
        needle="Timed out initializing process group in store based barrier on rank: ",
        title="Only {has} of {world} ranks joined the process group",
        cause=(
            "Rank {rank} waited until its time-out for the other ranks: they did not start, ended, "
            "or cannot reach MASTER_ADDR."
        ),
        fix=(
            "Look at the ranks that are missing; check that MASTER_ADDR, MASTER_PORT and WORLD_SIZE "
            "are the same everywhere and the port is open."
        ),
        source="torch/distributed/distributed_c10d.py",
        fires=(
            "torch.distributed.DistStoreError: Timed out initializing process group in store based "
            "barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=1, "
            "timeout=0:30:00)"
        ),
        spares="INFO initializing process group: store based barrier passed on rank: 0",
    ),
    Signature(
        id="store-clients",
        component="torch",
        role="waits",
        pattern=(
            r"Timed out after (?P<seconds>\d{1,7}) seconds waiting for clients\. "
            r"(?P<has>\d{1,6})/(?P<world>\d{1,6}) clients joined"
        ),
        needle=" seconds waiting for clients. ",
        title="Only {has} of {world} processes joined within {seconds} s",
        cause=("The other processes did not start, ended, or cannot reach MASTER_ADDR and MASTER_PORT."),
        fix=(
            "Look at the processes that are missing; check MASTER_ADDR, MASTER_PORT and WORLD_SIZE, "
            "and that the port is open between the hosts."
        ),
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        fires=(
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
            "clients joined."
        ),
        spares="INFO after 3 seconds all clients joined",
    ),
    Signature(
        id="store-wait",
        component="torch",
        role="waits",
        pattern=r"wait timeout after (?P<ms>\d{1,12})ms, keys: (?P<keys>\S{1,160})",
        needle="wait timeout after ",
        title="A rank waited {ms} ms for a word of another rank",
        cause=(
            "The rank waited for {keys}, which another rank did not write: it did not start, ended, "
            "or is slow."
        ),
        fix=(
            "Find the rank that printed an error before this, or did not come so far; check that all "
            "ranks reach MASTER_ADDR."
        ),
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        fires=("torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
        spares="INFO wait timeout is 600000ms, keys: none",
    ),
    Signature(
        id="rendezvous-store",
        component="torch",
        role="waits",
        pattern=(
            "(?:RendezvousConnectionError: The connection to the C10d store has "
            "failed|RendezvousTimeoutError)"
        ),
        needle="Rendezvous",
        title="torchrun's rendezvous failed: the hosts did not find each other",
        cause=(
            "The hosts of torchrun did not meet: the first one is not up, --rdzv_endpoint or the "
            "port is wrong, or fewer hosts came than --nnodes asks for."
        ),
        fix=(
            "Check --nnodes, --rdzv_id and --rdzv_endpoint on all hosts, and that the endpoint's "
            "port is open."
        ),
        source="torch/distributed/elastic/rendezvous/api.py",
        fires=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed. See inner exception for details."
        ),
        spares="INFO the rendezvous at the C10d store is complete",
    ),
    Signature(
        id="gloo-exclusion-list",
        component="torch",
        role="cause",
        pattern=(
            r"gloo/transport/tcp/device\.cc:\d{1,5}\] [^\n]{0,60}?Unable to find (?:interface|address) for: "
            r"(?P<names>\^[^\s]{1,120}|[\w.-]{1,60},[\w.,-]{1,120})"
        ),
        needle="gloo/transport/tcp/device.cc:",
        title="GLOO_SOCKET_IFNAME holds a list; gloo takes one interface: {names}",
        cause=(
            "Only NCCL understands a list of interfaces, or one that excludes some (^lo). Gloo takes the text for the "
            "name of one interface, which no host has."
        ),
        fix="Set GLOO_SOCKET_IFNAME to one interface that every host has (ip -br addr); NCCL_SOCKET_IFNAME may stay.",
        command="ip -br addr; echo $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME",
        source="aws-samples/aws-do-eks pull 51",
        fires=(
            "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
            "Unable to find address for: ^docker0,lo"
        ),
        spares=(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
            "Unable to find interface for: eth7"
        ),
    ),
    Signature(
        id="gloo-interface",
        component="torch",
        role="cause",
        pattern=(
            r"gloo/transport/tcp/device\.cc:\d{1,5}\] (?P<what>[^\n]{0,60}?(?:Unable to find "
            r"(?:interface|address) for|No network interface|ifa != nullptr)(?![^\n]{0,60}\^)[^\n]{0,120})"
        ),
        needle="gloo/transport/tcp/device.cc:",
        title="gloo found no network interface (GLOO_SOCKET_IFNAME)",
        cause="The host's own name has no address that other ranks can use: {what}",
        fix=(
            "Set GLOO_SOCKET_IFNAME to an interface that every host has (ip -br addr), and give the "
            "host's name an address in /etc/hosts."
        ),
        command="hostname -I; ip -br addr; echo $GLOO_SOCKET_IFNAME",
        source="gloo transport/tcp/device.cc",
        fires=(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa "
            "!= nullptr. Unable to find interface for: [0.0.0.0]"
        ),
        spares="INFO gloo/transport/tcp/device.cc: interface eth0 found",
    ),
    Signature(
        id="gloo-connect",
        component="torch",
        role="cause",
        pattern=r"Gloo connectFullMesh failed with (?P<why>[^\n]{1,160})",
        needle="Gloo connectFullMesh failed with ",
        title="gloo could not connect the ranks with each other",
        cause="Ranks could not reach each other: {why}",
        fix=(
            "Set GLOO_SOCKET_IFNAME to the interface that joins the hosts, and open all ports between them."
        ),
        command="ip -br addr; echo $GLOO_SOCKET_IFNAME",
        source="gloo rendezvous/context.cc",
        fires=(
            "RuntimeError: Gloo connectFullMesh failed with "
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
        ),
        spares="INFO Gloo connectFullMesh done",
    ),
    Signature(
        id="gloo-timeout",
        component="torch",
        role="waits",
        pattern=(
            r"gloo/transport/tcp/\S{1,60}\] Timed out waiting (?P<ms>\d{1,12})ms for "
            r"(?P<what>\w{1,20}) operation"
        ),
        needle="] Timed out waiting ",
        title="A rank waited {ms} ms for another one (gloo)",
        cause=("Another rank did not answer within the time-out: it hangs, is slow, or has ended."),
        fix=(
            "Find the rank that printed an error before this, or none; raise the time-out if it was "
            "only slow."
        ),
        source="gloo transport/tcp/unbound_buffer.cc",
        fires=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
            "waiting 1800000ms for recv operation to complete"
        ),
        spares="INFO gloo/transport/tcp/pair.cc] waiting for recv operation",
    ),
    Signature(
        id="group-twice",
        component="torch",
        role="cause",
        pattern="trying to initialize the default process group twice",
        needle="trying to initialize the default process group twice",
        title="torch's process group is set up twice",
        cause="Two parts of the program call init_process_group.",
        fix="Call it once, or ask torch.distributed.is_initialized() before.",
        source="torch/distributed/distributed_c10d.py",
        fires="ValueError: trying to initialize the default process group twice!",
        spares="INFO the default process group is initialized",
    ),
    Signature(
        id="group-missing",
        component="torch",
        role="cause",
        pattern="Default process group has not been initialized",
        needle="Default process group has not been initialized",
        title="torch's process group is used before it is set up",
        cause=(
            "A collective is called without init_process_group, usually because the program was not "
            "started by torchrun."
        ),
        fix="Start it with torchrun, or call torch.distributed.init_process_group() first.",
        source="torch/distributed/distributed_c10d.py",
        fires=(
            "ValueError: Default process group has not been initialized, please make sure to call "
            "init_process_group."
        ),
        spares="INFO Default process group initialized",
    ),
    Signature(
        id="env-rendezvous",
        component="torch",
        role="cause",
        pattern=(
            "environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) "
            "expected, but not set"
        ),
        needle=" expected, but not set",
        title="{name} is not set: the program was not started by torchrun",
        cause=("The program wants a place among ranks from the environment, and {name} is missing."),
        fix="Start it with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
        source="torch/distributed/rendezvous.py",
        fires=(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
            "variable RANK expected, but not set"
        ),
        spares="INFO environment variable RANK is set as expected",
    ),
)
