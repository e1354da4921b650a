"""Tests that only the soak runs, because another test in CI shows the same on the same part: read by `selection`.

Most are variants: another launcher, storage or fault for one claim. A test that is listed here is not marked ``soak``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SHOWN_BY: dict[str, dict[str, str]] = {
    "e2e/test_init.py": {
        "test_doctor_lists_what_the_job_installs[keras]": "test_doctor_lists_what_the_job_installs[torch]",
        "test_doctor_lists_what_the_job_installs[lightning]": "test_doctor_lists_what_the_job_installs[torch]",
        "test_doctor_lists_what_the_job_installs[transformers]": "test_doctor_lists_what_the_job_installs[torch]",
    },
    "e2e/test_framework_examples.py": {
        "test_the_rank_that_failed_is_named_although_others_fail_too": (
            "integration/local/test_local_failures.py::"
            "test_a_rank_that_nccl_ended_does_not_hide_the_one_that_failed"
        ),
    },
    "integration/checkpoint/test_checkpoint_exit.py": {
        "test_the_last_save_is_committed[s3-sys.exit]": "test_the_last_save_is_committed[file-sys.exit]",
        "test_the_last_save_is_committed[s3-an exception]": "test_the_last_save_is_committed[file-an exception]",
        "test_the_last_save_is_committed[file-it is through]": "test_the_last_save_is_committed[s3-it is through]",
    },
    "integration/checkpoint/test_checkpoint_storage.py": {
        "test_tens_of_thousands_of_tensors[file]": "test_tens_of_thousands_of_tensors[s3]",
    },
    "integration/checkpoint/test_digits_resume.py": {
        "test_a_single_process_outside_a_job": (
            "integration/checkpoint/test_one_rank_on_windows.py::test_a_script_without_a_job"
        ),
    },
    "integration/checkpoint/test_two_attempts.py": {
        "test_an_attempt_that_wakes_neither_ends_the_next_one_nor_saves[uncounted-s3]": (
            "test_an_attempt_that_wakes_neither_ends_the_next_one_nor_saves[uncounted-file]"
        ),
        "test_two_jobs_that_share_a_uri_are_refused[uncounted-s3]": (
            "test_two_jobs_that_share_a_uri_are_refused[uncounted-file]"
        ),
    },
    "integration/checkpoint_faults/test_failing_script.py": {
        "test_the_checkpoint_is_committed[0]": "test_the_checkpoint_is_committed[1]",
    },
    "integration/checkpoint_faults/test_killed_training.py": {
        "test_nothing_durable_is_lost[local and s3]": "test_nothing_durable_is_lost[s3]",
    },
    "integration/checkpoint_sharded/test_sharded_faults.py": {
        "test_a_notice_to_one_rank[file-0.3s]": "test_a_notice_to_one_rank[s3-0.3s]",
        "test_a_notice_to_one_rank[s3-1000]": "test_a_notice_to_one_rank[file-1000]",
    },
    "integration/checkpoint_sharded/test_sharded_layouts.py": {
        "test_saved_in_one_layout_and_restored_in_others[file]": (
            "test_saved_in_one_layout_and_restored_in_others[s3]"
        ),
    },
    "integration/distributed/test_distributed_start.py": {
        "test_under_torchrun": "integration/local/test_script_python.py::test_collectives_and_torchrun",
    },
    "integration/hosts/test_hosts_copies.py": {
        "test_a_lost_host_loses_no_more_than_the_steps_since_its_last_copy[alone=True]": (
            "test_a_lost_host_loses_no_more_than_the_steps_since_its_last_copy[]"
        ),
    },
    "integration/hosts/test_hosts_start.py": {
        "test_ranks_reach_each_other_over_the_network[mpirun-5]": "test_hosts_may_have_ipv6_only",
        "test_sigterm_to_one_host_stops_both_with_grace[torchrun]": (
            "integration/local/test_local_restarts.py::test_a_stop_restarts_nothing"
        ),
    },
    "integration/hosts/test_spare_hosts.py": {
        "test_a_job_moves_off_a_host_that_is_taken_back[USR1]": (
            "test_a_job_continues_with_fewer_hosts_until_one_is_left"
        ),
        "test_a_runtime_that_is_paused_loses_its_place[n1]": (
            "test_a_leader_that_the_network_cut_off_does_not_train_on"
        ),
        "test_two_hosts_are_lost_and_one_is_spare": "test_a_spare_that_dies_while_it_waits",
    },
    "integration/kubernetes/test_kube_ends.py": {
        "test_a_script_raises": (
            "integration/conformance/test_contract.py::test_a_failure_has_the_same_report_everywhere[kubernetes]"
        ),
    },
    "integration/kubernetes/test_kube_server.py": {
        "test_a_finished_job_goes_with_what_it_owns": (
            "integration/kubernetes/test_kube_training.py::"
            "test_ranks_average_over_mpirun_while_the_api_server_fails"
        ),
    },
    "integration/local/test_local_edges.py": {
        "test_a_stop_while_torchrun_starts_does_not_wait_for_the_grace[1.0]": (
            "test_a_stop_while_torchrun_starts_does_not_wait_for_the_grace[0.2]"
        ),
        "test_a_stop_while_torchrun_starts_does_not_wait_for_the_grace[2.0]": (
            "test_a_stop_while_torchrun_starts_does_not_wait_for_the_grace[0.2]"
        ),
        "test_under_torchrun_the_exit_code_is_the_ranks_while_another_is_slow_to_end": (
            "test_under_torchrun_the_killed_rank_is_the_cause_and_not_one_that_saved_and_exited"
        ),
    },
    "integration/local/test_local_ends.py": {
        "test_while_the_interpreter_ends[torch_distributed--preempt]": (
            "test_while_the_interpreter_ends[processes-sys.exit()-preempt]"
        ),
        "test_while_the_model_is_uploaded[stop-1]": (
            "integration/local/test_local_edges.py::test_a_stop_in_the_upload_uploads_once"
        ),
    },
    "integration/local/test_local_failing_files.py": {
        "test_a_folder_that_fails_for_a_moment_ends_no_job[EAGAIN]": (
            "test_a_folder_that_fails_for_a_moment_ends_no_job[ESTALE]"
        ),
        "test_a_folder_that_fails_for_a_moment_ends_no_job[ENOTCONN]": (
            "test_a_folder_that_fails_for_a_moment_ends_no_job[ESTALE]"
        ),
        "test_a_folder_that_fails_for_a_moment_ends_no_job[ETIMEDOUT]": (
            "test_a_folder_that_fails_for_a_moment_ends_no_job[ESTALE]"
        ),
    },
    "integration/local/test_local_failures.py": {
        "test_failures_under_torchrun[exception-1]": "test_failures_under_torchrun[kill-9-2]",
        "test_one_rank_fails[data]": (
            "unit/runtime/test_diagnose.py::test_classes_by_exception[FileNotFoundError-x-missing-data]"
        ),
        "test_one_rank_fails[disk]": (
            "unit/runtime/test_diagnose.py::"
            "test_classes_by_exception[OSError-[Errno 28] No space left on device: 'x'-disk-full]"
        ),
        "test_one_rank_fails[exit-7]": "test_one_rank_fails[exit-5]",
        "test_one_rank_fails[import]": (
            "unit/runtime/test_diagnose.py::"
            "test_classes_by_exception[ModuleNotFoundError-No module named 'nosuch'-import-error]"
        ),
        "test_one_rank_fails[memory]": (
            "unit/runtime/test_diagnose.py::test_classes_by_exception[MemoryError--out-of-memory]"
        ),
        "test_one_rank_fails[segfault]": "test_one_rank_fails[kill-9]",
    },
    "integration/local/test_local_groups.py": {
        "test_other_hosts_run_the_script_once[processes]": "test_other_hosts_run_the_script_once[mpi]",
    },
    "integration/local/test_local_killed_starts.py": {
        "test_the_next_attempt_of_a_killed_start_is_healthy[torch_distributed]": (
            "test_the_next_attempt_of_a_killed_start_is_healthy[processes]"
        ),
    },
    "integration/local/test_local_outputs.py": {
        "test_the_model_of_all_hosts_is_one_archive[file]": "test_the_model_of_all_hosts_is_one_archive[s3]",
    },
    "integration/local/test_local_stop.py": {
        "test_the_rank_that_the_others_wait_for_is_blamed_for_a_hang": (
            "integration/local/test_local_silence.py::test_a_rank_in_its_data_loader"
        ),
    },
    "integration/local/test_local_upload_later.py": {
        "test_a_job_waits_for_its_storage[1]": "test_a_job_waits_for_its_storage[2]",
        "test_what_could_not_be_uploaded_is_sent_later[1]": "test_what_could_not_be_uploaded_is_sent_later[2]",
    },
    "integration/local/test_local_without_launcher.py": {
        "test_a_script_may_start_ranks_itself[by torch]": "test_a_script_may_start_ranks_itself[by hvd]",
    },
    "integration/local/test_mpirun.py": {
        "test_one_rank_fails[4-mpi-segfault]": "test_one_rank_fails[4-no-mpi-kill-9]",
        "test_the_position_of_every_rank[4-1]": "test_the_position_of_every_rank[4-2]",
    },
    "integration/local/test_requirements.py": {
        "test_a_requirement_whose_setup_fails_is_named_as_such[isolated]": (
            "test_a_requirement_whose_setup_fails_is_named_as_such[metadata]"
        ),
        "test_a_requirement_whose_setup_fails_is_named_as_such[wheel]": (
            "test_a_requirement_whose_setup_fails_is_named_as_such[metadata]"
        ),
    },
    "integration/local/test_script_python.py": {
        "test_requirements_are_installed_for_that_interpreter[bare_python]": (
            "test_requirements_are_installed_for_that_interpreter[python39]"
        ),
        "test_requirements_are_installed_for_that_interpreter[python39_with_pip]": (
            "integration/local/test_requirements.py::"
            "test_jobs_with_the_same_requirements_share_one_environment_until_it_is_cleaned"
        ),
        "test_requirements_that_cannot_be_installed_name_the_reason": (
            "integration/local/test_requirements.py::"
            "test_a_requirement_whose_setup_fails_is_named_as_such[metadata]"
        ),
    },
    "integration/local/test_undistributed.py": {
        "test_a_script_that_reads_its_rank[torch.distributed]": "test_a_script_that_reads_its_rank[the rank]",
    },
    "integration/mxnet/test_mxnet_adapter.py": {
        "test_a_restored_training_continues_bit_for_bit[adagrad]": (
            "test_a_restored_training_continues_bit_for_bit[adam]"
        ),
        "test_a_restored_training_continues_bit_for_bit[nag]": (
            "test_a_restored_training_continues_bit_for_bit[adam]"
        ),
        "test_a_restored_training_continues_bit_for_bit[sgd]": (
            "test_a_restored_training_continues_bit_for_bit[adam]"
        ),
    },
    "integration/mxnet/test_mxnet_ranks.py": {"test_all_cases[1]": "test_all_cases[2]"},
    "integration/sagemaker/test_sagemaker_logs.py": {
        "test_many_streams_are_complete_and_in_order[full-pages]": (
            "test_many_streams_are_complete_and_in_order[empty-pages]"
        ),
    },
    "integration/sagemaker_runtime/test_simulated_images.py": {
        "test_python_is_enough[this]": "test_python_is_enough[3.9]",
    },
    "integration/slurm/test_clean_and_queues.py": {
        "test_jobs_that_wait_or_run_keep_their_folders_and_the_runtime[torque]": (
            "test_jobs_that_wait_or_run_keep_their_folders_and_the_runtime[slurm]"
        ),
    },
    "integration/slurm/test_slurm_continues.py": {
        "test_a_preemption[cancels]": "test_a_preemption[requeues]"
    },
    "integration/slurm/test_slurm_node_folder.py": {
        "test_a_killed_job_leaves_nothing_on_its_nodes[cancelled]": (
            "test_a_killed_job_leaves_nothing_on_its_nodes[killed]"
        ),
    },
    "integration/slurm/test_slurm_readers.py": {
        "test_an_error_of_squeue_ends_no_job[invalid-user]": "test_an_error_of_squeue_ends_no_job[error]",
    },
    "integration/slurm/test_slurm_spares.py": {
        "test_a_job_continues_on_the_nodes_that_are_left[down-127.0.0.3]": (
            "test_a_spare_node_takes_a_place[down-127.0.0.3-places0]"
        ),
        "test_a_spare_node_takes_a_place[taken-back-127.0.0.3-places2]": (
            "test_a_job_continues_on_the_nodes_that_are_left[taken-back-127.0.0.2]"
        ),
    },
    "integration/slurm/test_slurm_sweep.py": {
        "test_a_controller_that_is_killed_inside_of_sbatch": (
            "integration/slurm/test_submissions.py::test_a_client_that_is_killed_while_it_submits[slurm-submitted]"
        ),
    },
    "integration/slurm/test_submissions.py": {
        "test_a_client_that_is_killed_while_it_submits[slurm-not-submitted]": (
            "test_a_client_that_is_killed_while_it_submits[torque-not-submitted]"
        ),
        "test_a_client_that_is_killed_while_it_submits[torque-submitted]": (
            "test_a_client_that_is_killed_while_it_submits[slurm-submitted]"
        ),
        "test_a_job_that_runs_is_not_started_again[torque]": "test_a_job_that_runs_is_not_started_again[slurm]",
        "test_a_submission_that_succeeds_without_a_number_is_found_in_the_queue[slurm-nothing]": (
            "test_a_submission_that_succeeds_without_a_number_is_found_in_the_queue[slurm-words]"
        ),
        "test_a_submission_that_succeeds_without_a_number_is_found_in_the_queue[torque-words]": (
            "test_a_submission_that_succeeds_without_a_number_is_found_in_the_queue[torque-nothing]"
        ),
        "test_a_submission_without_any_answer_may_be_queued[torque]": (
            "test_a_submission_without_any_answer_may_be_queued[slurm]"
        ),
    },
    "integration/slurm/test_torque_on_slurm.py": {
        "test_a_part_of_an_answer_ends_no_job[nothing]": "test_a_part_of_an_answer_ends_no_job[a-part]",
        "test_a_stop_reaches_a_job_that_was_taken_for_dead": (
            "integration/slurm/test_slurm_readers.py::test_a_stop_reaches_a_job_that_was_taken_for_dead"
        ),
    },
    "integration/storage/test_s3_away.py": {
        "test_a_source_is_one_request_and_in_parts_if_that_breaks[file-503 SlowDown]": (
            "test_a_source_is_one_request_and_in_parts_if_that_breaks[path-503 SlowDown]"
        ),
        "test_a_source_is_one_request_and_in_parts_if_that_breaks[path-dropped connections]": (
            "test_a_source_is_one_request_and_in_parts_if_that_breaks[file-dropped connections]"
        ),
        "test_every_call_waits_for_the_service[download large-503 SlowDown]": (
            "test_every_call_waits_for_the_service[download large-dropped connections]"
        ),
        "test_every_call_waits_for_the_service[download_tree-dropped connections]": (
            "test_every_call_waits_for_the_service[download_tree-503 SlowDown]"
        ),
        "test_every_call_waits_for_the_service[upload large-503 SlowDown]": (
            "test_every_call_waits_for_the_service[upload large-dropped connections]"
        ),
        "test_every_call_waits_for_the_service[upload_tree-dropped connections]": (
            "test_every_call_waits_for_the_service[upload_tree-503 SlowDown]"
        ),
    },
    "integration/storage/test_s3_interrupted.py": {
        "test_a_body_whose_connection_always_breaks[20971520]": (
            "integration/storage/test_s3_away.py::test_a_body_that_always_breaks_off_is_given_up[download large]"
        ),
    },
}
"""By file, each test and the one that shows the same: in the same file, unless a file is named."""


def is_variant(item: pytest.Item) -> bool:
    path, name = _place(item)
    return name in SHOWN_BY.get(path, {})


def check(items: Iterable[pytest.Item], in_soak: Iterable[pytest.Item], needy: Iterable[pytest.Item]) -> None:
    """Refuse an entry that names no test, or whose other test does not run wherever this one would.

    Args:
        items: all tests of some files.
        in_soak: those that CI leaves out.
        needy: those that need a part which CI may lack.
    """
    found, left_out, needs = ({_place(item) for item in some} for some in (items, in_soak, needy))
    files = {path for path, _ in found}
    for path, tests in SHOWN_BY.items():
        for name, other in tests.items():
            where, _, shows = other.rpartition("::")
            variant, shown = (path, name), (where or path, shows)
            if path in files and variant not in found:
                raise pytest.UsageError(f"tests/variants.py: there is no test {name} in {path}")
            if shown[0] in files and (shown not in found or shown in left_out):
                raise pytest.UsageError(f"tests/variants.py: CI does not run {other}, which shows {name}")
            if shown in needs and variant in found and variant not in needs:
                raise pytest.UsageError(f"tests/variants.py: {other} is left out where {name} is not")


def _place(item: pytest.Item) -> tuple[str, str]:
    return _name(item.path), item.name


@cache
def _name(path: Path) -> str:
    return path.as_posix().removeprefix(f"{TESTS.as_posix()}/")
