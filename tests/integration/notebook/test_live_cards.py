"""Jobs in a notebook: a real kernel runs the cells, and what the notebook shows afterwards is looked at."""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

HAS_KERNEL = (
    importlib.util.find_spec("ipykernel") is not None or os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1"
)
pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no ipykernel")

SCRIPTS = {
    "train.py": """
        import time
        for step in range(6):
            print(f"loss={1 / (step + 1):.3f}", flush=True)
            time.sleep(0.2)
    """,
    "broken.py": "open('/data/<labels>.csv')",
    "interrupts.py": """
        import os, signal, time
        os.kill(int(os.environ["KERNEL"]), signal.SIGINT)
        time.sleep(600)
    """,
    "quick.py": "print('<b>quick</b>')",
}

CELLS = (
    """
    import os
    from cloudtrain import Estimator
    estimator = Estimator(
        "train.py", distribution={"processes": {"processes_per_host": 2}},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    )
    estimator.fit(job_name="trained")
    """,
    "job = estimator.latest_training_job\nprint(job)\njob",
    "Estimator('broken.py').fit(logs=False, job_name='broke')",
    """
    interrupted = Estimator("interrupts.py", environment={"KERNEL": str(os.getpid())})
    interrupted.fit(job_name="left")
    """,
    "left = interrupted.latest_training_job\nleft.stop()\nleft.wait()",
    "jobs = Estimator('quick.py').fit_array([{}, {}], job_name='quick')\nfor job in jobs: job.wait(logs=True)",
    "jobs",
    "from cloudtrain import Job\nJob('nowhere', job.platform)",
)
TRAINED, SHOWN, BROKE, LEFT, STOPPED, ARRAY, TABLE, NOWHERE = range(len(CELLS))


class _Client(NotebookClient):
    """Runs a notebook, and keeps each update of a display."""

    updates: Sequence[tuple[str, str]] = ()

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            content = msg["content"]
            shown = (content["transient"].get("display_id", ""), content["data"]["text/html"])
            self.updates = (*self.updates, shown)
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> _Client:
    """A notebook that has run."""
    folder = tmp_path_factory.mktemp("notebook")
    for name, script in SCRIPTS.items():
        (folder / name).write_text(textwrap.dedent(script))
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(cell).strip()) for cell in CELLS]
    client = _Client(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    homes = {"CLOUDTRAIN_HOME": "cloudtrain", "JUPYTER_DATA_DIR": "jupyter", "IPYTHONDIR": "ipython"}
    with pytest.MonkeyPatch.context() as patch:
        for variable, name in homes.items():
            patch.setenv(variable, str(folder / name))
        client.execute()
    return client


def _outputs(client: _Client, cell: int, kind: str) -> list[Any]:
    return [output for output in client.nb.cells[cell].outputs if output.output_type == kind]


def _cards(client: _Client, cell: int) -> list[str]:
    return [output.data["text/html"] for output in _outputs(client, cell, "display_data")]


def _printed(client: _Client, cell: int) -> str:
    return "".join(output.text for output in _outputs(client, cell, "stream"))


def test_the_card_stays_in_the_notebook_and_the_lines_are_below(client: _Client) -> None:
    (card,) = _cards(client, TRAINED)
    assert "<b>Completed</b> <code>trained</code>" in card
    assert "<code>algo-1</code> Completed" in card
    assert 'aria-label="loss: from 1 to 0.167, lowest 0.167, highest 1"' in card
    assert _printed(client, TRAINED).count("loss=0.167") == 2
    assert client.nb.cells[TRAINED].outputs[0].output_type == "display_data"


def test_the_card_was_live(client: _Client) -> None:
    updates = [(one, html) for one, html in client.updates if "<code>trained</code>" in html]
    assert len({display_id for display_id, _ in updates}) == 1
    running = [html for _, html in updates if "<b>Running</b>" in html]
    assert any("<dt>loss</dt>" in html and "<b>train</b>" in html for html in running)
    assert len(updates) < 25
    assert "<b>Completed</b>" in updates[-1][1]


def test_the_value_of_the_cell_that_waited_is_one_line(client: _Client) -> None:
    (value,) = _outputs(client, TRAINED, "execute_result")
    assert value.data == {"text/plain": "<Job trained on local>"}


def test_a_job_is_shown_as_a_card_and_printed_in_one_line(client: _Client) -> None:
    (value,) = _outputs(client, SHOWN, "execute_result")
    assert value.data["text/html"] == _cards(client, TRAINED)[0]
    assert value.data["text/plain"].startswith("Job trained on local\nstatus        Completed\nloss ")
    assert _printed(client, SHOWN) == "<Job trained on local>\n"


def test_a_failure_is_in_the_card_and_raised(client: _Client) -> None:
    (card,) = _cards(client, BROKE)
    assert "<b>Failed</b> <code>broke</code>" in card
    assert (
        "raised FileNotFoundError: [Errno 2] No such file or directory: &#x27;/data/&lt;labels&gt;.csv&#x27;"
        in card
    )
    assert "<summary>Traceback</summary>" in card
    (error,) = _outputs(client, BROKE, "error")
    assert error.ename == "TrainingFailed"
    assert _printed(client, BROKE) == ""


def test_an_interrupt_leaves_the_job_running_and_shows_how_to_attach(client: _Client) -> None:
    (card,) = _cards(client, LEFT)
    assert "<b>Running</b> <code>left</code>" in card
    assert "cloudtrain.Job.attach(&#x27;left&#x27;).wait(logs=True)" in card
    (error,) = _outputs(client, LEFT, "error")
    assert error.ename == "KeyboardInterrupt"
    assert error.traceback == [
        "KeyboardInterrupt",
        "This cell no longer waits for job left, which continues. Attach: "
        "cloudtrain.Job.attach('left').wait(logs=True)",
        "Stop it: cloudtrain.Job.attach('left').stop()",
    ]
    assert "<b>Stopped</b> <code>left</code>" in _cards(client, STOPPED)[0]


def test_each_job_of_a_cell_has_its_card(client: _Client) -> None:
    first, second = _cards(client, ARRAY)
    assert "<b>Completed</b> <code>quick-0</code>" in first
    assert "<b>Completed</b> <code>quick-1</code>" in second
    assert _printed(client, ARRAY).count("<b>quick</b>") == 2


def test_jobs_are_shown_as_a_table(client: _Client) -> None:
    (value,) = _outputs(client, TABLE, "execute_result")
    assert value.data["text/plain"] == "[<Job quick-0 on local>, <Job quick-1 on local>]"
    assert value.data["text/html"].count("<b>Completed</b></td><td><code>quick-") == 2


def test_a_deleted_job_is_shown_as_deleted(client: _Client) -> None:
    (value,) = _outputs(client, NOWHERE, "execute_result")
    assert "there is no local job nowhere" in value.data["text/html"]
    assert value.data["text/plain"] == "Job nowhere on local: there is no local job nowhere"
