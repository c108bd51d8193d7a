"""Signatures of what records a run: wandb, MLflow."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="wandb-init-timeout",
        component="python",
        role="cause",
        pattern=(
            r"wandb\.errors(?:\.errors)?\.CommError: Run initialization has timed out after "
            r"(?P<time>[\d.]{1,10}) sec"
        ),
        needle="Run initialization has timed out after ",
        title="wandb did not start the run within {time} s, and the program ended with it",
        cause="wandb's server did not answer in time: no way to it (firewall, proxy), a slow network, or an outage.",
        fix=(
            "Check that the host reaches it; raise WANDB_INIT_TIMEOUT for a slow network; credentials.wandb_mode "
            "offline trains without it, and wandb sync sends what was kept."
        ),
        command="curl -sSI https://api.wandb.ai",
        patch={"credentials.wandb_mode": "offline"},
        source="wandb/sdk/wandb_init.py",
        fires="wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec. ",
        spares="wandb: Run initialization has timed out once and is tried again",
    ),
    Signature(
        id="wandb-refused",
        component="python",
        role="cause",
        pattern=(
            r"wandb\.errors(?:\.errors)?\.(?:CommError|AuthenticationError|PermissionError|UsageError): "
            r"(?!api_key not configured|Run initialization has timed out)(?P<why>[^\n]{1,200})"
        ),
        needle="wandb.errors",
        title="wandb refused the run, and the program ended with it",
        cause="Its answer: {why}.",
        fix=(
            "Check the key (credentials.wandb_api_key), that the entity and project exist for it and that "
            "the host reaches the server; credentials.wandb_mode offline trains without it."
        ),
        patch={"credentials.wandb_mode": "offline"},
        source="wandb/errors",
        fires=(
            "wandb.errors.errors.CommError: Error uploading run: returned error 404: "
            '{"data":{"upsertBucket":null}}'
        ),
        spares=(
            "wandb.errors.errors.UsageError: api_key not configured (no-tty). call "
            "wandb.login(key=[your_api_key])"
        ),
    ),
    *family(
        Signature(
            id="wandb-service",
            component="python",
            role="cause",
            pattern="ServicePollForTokenError: ",
            needle="ServicePollForTokenError: ",
            title="wandb's helper process did not start, and the program ended with it",
            cause=(
                "wandb starts a service of its own, which did not answer in time: a slow or full disk (home, "
                "/tmp), or a host under load."
            ),
            fix=(
                "Raise WANDB__SERVICE_WAIT (seconds), put WANDB_DIR and TMPDIR on a local disk, or set "
                "credentials.wandb_mode offline."
            ),
            source="wandb/sdk/lib/service",
            fires=(
                "wandb.sdk.lib.service.service_token.ServicePollForTokenError: Failed to read port info after "
                "30.0 seconds."
            ),
            spares="INFO ServicePollForTokenError is handled",
        ),
        Text(
            id="wandb-service-start",
            pattern="ServiceStart(?:Timeout|Process|Port)Error: ",
            needle="ServiceStart",
            fires=(
                "wandb.sdk.service.service.ServiceStartTimeoutError: Timed out waiting for wandb service to "
                "start after 30.0 seconds."
            ),
            spares="INFO ServiceStart done, no Error: fine",
        ),
    ),
    Signature(
        id="wandb-network",
        component="python",
        role="cause",
        pattern=(
            r"wandb: (?:ERROR|WARNING|W&B) ?[^\n]{0,80}?(?:Network error|Error while calling W&B API|API is "
            "unreachable|filestream: fatal error)"
        ),
        needle="wandb: ",
        title="wandb cannot reach its server, or is refused",
        cause="Metrics are kept on disk and sent later, if the program goes on.",
        fix="Check the network, the key and the project; wandb sync sends what was kept.",
        command="wandb sync --sync-all",
        severity="info",
        alive=True,
        source="wandb/sdk/internal",
        fires="wandb: ERROR Error while calling W&B API: project not found (<Response [404]>)",
        spares="wandb: Run data is saved locally",
    ),
    Signature(
        id="mlflow-refused",
        component="python",
        role="cause",
        pattern=r"mlflow\.exceptions\.(?:Mlflow|Rest)Exception: (?P<why>[^\n]{1,200})",
        needle="mlflow.exceptions.",
        title="The MLflow server refused a call, and the program ended with it",
        cause="Its answer: {why}.",
        fix=("Check MLFLOW_TRACKING_URI and the rights there, or remove mlflow from verl's trainer.logger."),
        source="mlflow/exceptions.py",
        fires=(
            "mlflow.exceptions.MlflowException: API request to "
            "http://mlflow:5000/api/2.0/mlflow/runs/log-batch failed with exception HTTPConnectionPool"
        ),
        spares="INFO mlflow.exceptions are logged",
    ),
)
