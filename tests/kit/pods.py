"""A simulated cluster with TLS and a token, its kubeconfig, and pods in it."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from kit.fake_apiserver import Cluster as Fake
from kit.fake_apiserver import serve
from liverl.agents.pods import POD_RUN_ID, POD_TRIAL, label_value

TOKEN = "s3cret-token-of-a-test"
RUN = "a" * 32


class Served:
    """The fake, and a kubeconfig for it."""

    def __init__(self, folder: Path) -> None:
        pem = folder / "server.pem"
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
                "-out", folder / "ca.pem"]  # fmt: skip
        subprocess.run(made, check=True, capture_output=True, timeout=60)
        pem.write_text((folder / "ca.pem").read_text() + (folder / "key.pem").read_text())
        self.server = serve(0, TOKEN, str(pem))
        self.fake: Fake = self.server.RequestHandlerClass.cluster  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.path = folder / "kubeconfig"
        self.write({"token": TOKEN})

    def write(self, user: dict[str, Any], mode: int = 0o600, **more: Any) -> Path:
        """The kubeconfig, with another user or other keys."""
        cluster = {
            "server": f"https://127.0.0.1:{self.server.server_port}",
            "certificate-authority": "ca.pem",
        }
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "training",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "training", "context": {"cluster": "c", "user": "u", "namespace": "rl"}}], **more,
        }  # fmt: skip
        self.path.write_text(json.dumps(document))
        self.path.chmod(mode)
        return self.path

    def fault(self, what: str, **values: int) -> None:
        """drop, gone, bookmark, or fail with ``code`` for the next ``n`` requests."""
        fake = self.fake
        with fake.changed:
            if what == "gone":
                fake.version += 1
                fake.oldest, fake.log, fake.epoch = fake.version, [], fake.epoch + 1
            elif what == "drop":
                fake.epoch += 1
            elif what == "bookmark":
                fake.version += 1
                meta = {"metadata": {"resourceVersion": str(fake.version)}, "kind": "Pod"}
                fake.log.append((fake.version, "BOOKMARK", meta))
            else:
                fake.code, fake.fail, fake.epoch = values["code"], values["n"], fake.epoch + 1
            fake.changed.notify_all()

    def close(self) -> None:
        """End it, with all connections."""
        self.fault("drop")
        self.server.shutdown()
        self.server.server_close()


def pod(number: int, run: str = RUN, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"t-{number}", "namespace": "rl", "labels": {POD_RUN_ID: label_value(run)},
            "annotations": {POD_TRIAL: f"t-{number}"},
        },
        "spec": {"nodeName": f"node-{number % 3}"},
        "status": {"phase": "Running", **status},
    }  # fmt: skip
