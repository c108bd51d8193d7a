"""Signatures of hosts: containers and services that were killed, drivers and connections that fail."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="systemd-oom-result",
        component="host",
        role="cause",
        pattern=r"(?P<unit>[\w@.\\-]{1,120}): Failed with result 'oom-kill'",
        needle=": Failed with result 'oom-kill'",
        title="The kernel killed a process of {unit} for memory",
        cause=(
            "{unit} or the whole host used up its memory, and the kernel's OOM killer ended a process of it."
        ),
        fix=("Give the service or host more memory (MemoryMax of the unit), or use less: fewer workers."),
        command="journalctl -k | grep -i 'killed process'",
        source="systemd",
        fires="systemd[1]: vllm.service: Failed with result 'oom-kill'.",
        spares="systemd[1]: vllm.service: Failed with result 'exit-code'",
    ),
    Signature(
        id="nvidia-smi-failed",
        component="cuda",
        role="cause",
        pattern="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        needle="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        title="The NVIDIA driver does not run on this host",
        cause=(
            "The driver's kernel module is not loaded: not built for this kernel, blocked by secure "
            "boot, or not installed."
        ),
        fix=(
            "Load it (modprobe nvidia) and read why it fails (dmesg); install the driver for the "
            "running kernel again (dkms status)."
        ),
        command="dmesg -T | grep -i nvidia; dkms status",
        source="nvidia-smi",
        fires=(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
            "that the latest NVIDIA driver is installed and running."
        ),
        spares="NVIDIA-SMI 575.57 Driver Version: 575.57",
    ),
    Signature(
        id="cuda-driver-init",
        component="cuda",
        role="cause",
        pattern="CUDA driver initialization failed, you might not have a CUDA gpu",
        needle="CUDA driver initialization failed, you might not have a CUDA gpu",
        title="CUDA could not be initialized: no GPU, or its driver does not work",
        cause="torch found the driver's library, and the driver reports no usable GPU.",
        fix=(
            "Check nvidia-smi in the same environment; start the container with its GPU runtime (--gpus all)."
        ),
        command="nvidia-smi; ls -l /dev/nvidia*",
        source="torch/csrc/cuda/Module.cpp",
        fires="RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
        spares="INFO CUDA driver initialization done",
    ),
    Signature(
        id="cuda-driver-api",
        component="cuda",
        role="cause",
        pattern="API call is not supported in the installed CUDA driver",
        needle="API call is not supported in the installed CUDA driver",
        title="The NVIDIA driver is too old for this NCCL or CUDA",
        cause="A library uses a call that the installed driver does not have.",
        fix=(
            "Update the driver, or install torch for an older CUDA; NCCL_CUMEM_ENABLE=0 avoids the "
            "newest calls."
        ),
        command="nvidia-smi",
        source="CUDA cudaErrorCallRequiresNewerDriver",
        fires="Cuda failure 'API call is not supported in the installed CUDA driver'",
        spares="INFO this API call is supported in the installed driver",
    ),
    Signature(
        id="cuda-driver-error",
        component="cuda",
        role="cause",
        pattern=r"CUDA driver error: (?P<what>[^\n]{1,120})",
        needle="CUDA driver error: ",
        title="A call of the CUDA driver failed: {what}",
        cause="The driver refused a call: {what}.",
        fix=("Look at dmesg for Xid lines, at free GPU memory, and whether driver, CUDA and torch fit."),
        command="dmesg -T | grep -i xid; nvidia-smi",
        source="torch/csrc/inductor; flashinfer",
        fires="RuntimeError: CUDA driver error: invalid argument",
        spares="INFO CUDA driver: no error",
    ),
    Signature(
        id="host-unreachable",
        component="host",
        role="cause",
        pattern=(
            r"HTTPS?ConnectionPool\(host='(?P<host>[^'\n]{1,200}\.[a-z]{2,20})', port=(?P<port>\d{1,5})\): (?:Max "
            r"retries exceeded|Read timed out)(?![^\n]{0,300}(?:Failed to resolve|ProxyError))"
        ),
        needle="ConnectionPool(host='",
        title="{host}:{port} does not answer",
        cause=(
            "No connection to {host}:{port} came about, or no answer in time: the network, a proxy "
            "or a firewall."
        ),
        fix=(
            "Check the network from this host (curl -v https://{host}); where there is no internet "
            "use local paths (model.model_path, data.data_dir) and HF_HUB_OFFLINE=1."
        ),
        severity="warning",
        alive=True,
        command="curl -v https://{host}",
        source="requests, urllib3",
        fires=(
            "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='cdn-lfs.huggingface.co', "
            "port=443): Read timed out. (read timeout=10)"
        ),
        spares=(
            "urllib3: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded "
            "(Caused by NameResolutionError: Failed to resolve 'hub.example')"
        ),
    ),
    Signature(
        id="certificate",
        component="host",
        role="cause",
        pattern=(
            r"CERTIFICATE_VERIFY_FAILED(?!\] certificate verify failed: (?:self[- ]signed|unable to get (?:local )?"
            r"issuer|IP address mismatch|Hostname mismatch|certificate (?:has expired|is not yet valid)))"
        ),
        needle="CERTIFICATE_VERIFY_FAILED",
        title="A server's certificate was refused",
        cause=(
            "The certificate of a server (often of a proxy in between) is not known to this "
            "environment, or has run out."
        ),
        fix=(
            "Add the authority's certificate (SSL_CERT_FILE, REQUESTS_CA_BUNDLE), or correct the "
            "clock of the host."
        ),
        severity="warning",
        alive=True,
        source="OpenSSL, as Python prints it",
        fires=(
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify "
            "failed: EE certificate key too weak (_ssl.c:1006)"
        ),
        spares="INFO certificate: verify is on, not failed; CERTIFICATE",
    ),
)
