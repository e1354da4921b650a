"""The output of ranks: complete, in order, and arbitrary bytes."""

from __future__ import annotations

from local_jobs import TWO_RANKS, Run, folder


def test_a_flood_of_lines_arrives_complete_and_in_order(run: Run) -> None:
    job = run("for i in range(50_000): print('line', i)", distribution=TWO_RANKS)
    lines = job.logs().splitlines()
    for rank in (0, 1):
        assert [line for line in lines if line.startswith(f"[rank {rank}]")] == [
            f"[rank {rank}] line {i}" for i in range(50_000)
        ]
        kept = folder(job).host("algo-1").logs / f"rank-{rank}.log"
        assert kept.read_text().splitlines() == [f"line {i}" for i in range(50_000)]


def test_bytes_that_are_not_text_are_shown_and_stored(run: Run) -> None:
    job = run(
        r"import sys; sys.stdout.buffer.write(b'\xff\xfe ok\x00\n'); sys.stdout.flush(); raise ValueError('\udcff')"
    )
    assert job.logs().splitlines()[0] == "[rank 0] \\xff\\xfe ok\x00"
    assert (folder(job).host("algo-1").logs / "rank-0.log").read_bytes().startswith(b"\xff\xfe ok\x00\n")
    assert job.failure
    assert job.failure.message == "\\udcff"


def test_long_lines_unfinished_lines_and_progress_bars(run: Run) -> None:
    job = run(
        r"""
        import sys
        print("x" * 1_000_000)
        for i in range(100):
            sys.stdout.write(f"\r{i + 1}%")
        sys.stdout.write("\nno end")
        """
    )
    lines = job.logs().splitlines()
    assert sum(len(line.partition("] ")[2]) for line in lines[:-2]) == 1_000_000
    assert lines[-2:] == ["[rank 0] 100%", "[rank 0] no end"]


def test_standard_error_is_kept_in_its_place(run: Run) -> None:
    job = run("import sys\nfor i in range(3): print('out', i); print('err', i, file=sys.stderr)")
    assert [line[9:] for line in job.logs().splitlines()] == [
        "out 0",
        "err 0",
        "out 1",
        "err 1",
        "out 2",
        "err 2",
    ]


def test_the_last_lines_of_a_rank_are_in_the_report(run: Run) -> None:
    job = run('printf "fatal: boom"; exit 3', name="run.sh")
    assert job.failure
    assert (job.failure.exit_code, job.failure.log_tail[-1]) == (3, "fatal: boom")
