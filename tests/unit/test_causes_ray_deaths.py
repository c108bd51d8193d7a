"""What Ray's own words on an actor's end are worth."""

from __future__ import annotations

from liverl.causes.inputs.ray_deaths import is_consequence, of_death

# As Ray 2.60 said it of vLLM's server, which was killed with SIGKILL on a GPU.
DIED = (
    "replica vllm_server_0_0 is DEAD and was not replaced within 15 s: The actor is dead because its worker process "
    "has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error "
    "code 2. End of file."
)


def test_a_process_that_died_is_to_be_looked_for_in_its_own_log() -> None:
    found = of_death(DIED)
    assert found is not None and found.id == "worker-exit-system-error"
    assert "worker-*.err" in found.fix and "dmesg" in found.fix


def test_words_that_nothing_is_known_of_have_no_fix() -> None:
    assert of_death("replica vllm_server_0_0 is lost: Ray no longer lists the actor vllm_server_0_0") is None


def test_a_server_without_its_engine_is_a_consequence_with_a_fix() -> None:
    found = of_death("replica vllm_server_0_0 is ALIVE without an engine and was not replaced within 15 s: x")
    assert found is not None and is_consequence(found.id)
    assert "dmesg" in found.fix and "resume the run" in found.fix
