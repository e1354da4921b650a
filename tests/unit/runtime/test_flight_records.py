"""The places of ranks that hang, by their stacks and their flight records."""

from __future__ import annotations

from cloudtrain.observe.inquiry import InGroup
from cloudtrain.runtime.diagnose.collectives import with_records
from cloudtrain.runtime.diagnose.hangs import COLLECTIVE, OUTSIDE, Place, judge
from cloudtrain.runtime.diagnose.silence import JobWatch, Silence

GROUP = "nccl 0 default_pg"
CALL = "nccl:all_reduce of Float[20]"
ITEM = Place(OUTSIDE, "train at train.py:12")
LOADER = Place(OUTSIDE, "load at train.py:5")
LINE = Place(COLLECTIVE, "all_reduce at train.py:14")


def waits(number: int, call: str = CALL) -> dict[str, InGroup]:
    return {GROUP: InGroup(number, number, call)}


DONE = {GROUP: InGroup(3)}


def test_a_rank_that_waits_for_its_gpu_waits_for_the_one_that_is_behind() -> None:
    found = with_records({0: ITEM, 1: LOADER}, {0: waits(4), 1: DONE})
    assert found[0] == Place(COLLECTIVE, f"train at train.py:12 ({CALL}, number 4 of {GROUP})")
    verdict = judge(found)
    assert verdict
    assert verdict.ranks == (1,)


def test_a_job_whose_gpu_is_busy_in_a_collective_hangs_at_the_second_look() -> None:
    watch = JobWatch(["a"], 300)
    watch.add("a", 1000, Silence(300, {0: 0.0, 1: 300.0}))
    places = with_records({0: ITEM, 1: LOADER}, {0: waits(4), 1: DONE})
    stacks = {rank: (place, "") for rank, place in places.items()}
    assert watch.judge(stacks) is None
    found = watch.judge(stacks)
    assert found
    assert (found.ranks, found.where) == ("1", "load at train.py:5")


def test_work_after_which_all_ranks_have_begun_the_collective_is_work() -> None:
    assert with_records({0: ITEM, 1: LOADER}, {0: waits(4), 1: waits(4)}) == {0: ITEM, 1: LOADER}
    assert with_records({0: ITEM, 1: LOADER}, {0: waits(4)}) == {0: ITEM, 1: LOADER}, "rank 1 did not answer"


def test_ranks_in_the_same_line_and_those_of_gloo_are_where_their_stacks_are() -> None:
    assert with_records({0: LOADER, 1: LOADER}, {0: waits(4), 1: DONE}) == {0: LOADER, 1: LOADER}
    assert with_records({0: ITEM, 1: LOADER}, {0: waits(4, "gloo:barrier"), 1: DONE}) == {0: ITEM, 1: LOADER}


def test_a_rank_without_any_collective_is_behind_in_the_group_of_all() -> None:
    assert with_records({0: ITEM, 1: LOADER}, {0: waits(4), 1: {}})[0].kind == COLLECTIVE
    tensor = {"nccl 1 tensor": InGroup(4, 4, CALL)}
    assert with_records({0: ITEM, 1: LOADER}, {0: tensor, 1: {}}) == {0: ITEM, 1: LOADER}


def test_equal_stacks_in_different_collectives_name_the_odd_rank() -> None:
    records = {0: waits(7), 1: waits(7), 2: waits(7, "nccl:all_gather of Float[20]"), 3: waits(7)}
    verdict = judge(with_records(dict.fromkeys(range(4), LINE), records))
    assert verdict
    assert verdict.ranks == (2,)
    assert "nccl:all_gather" in verdict.why and "number 7" in verdict.why


def test_records_that_agree_change_nothing() -> None:
    places = dict.fromkeys(range(3), LINE)
    assert with_records(places, {rank: waits(7) for rank in range(9)}) == places
    assert with_records({}, {0: waits(1)}) == {}


def test_of_several_groups_the_one_that_waits_for_others_counts() -> None:
    both = {"nccl 1 data": InGroup(2, 2, "nccl:barrier"), **waits(4)}
    found = with_records({0: ITEM, 1: LOADER}, {0: both, 1: {"nccl 1 data": InGroup(2), **DONE}})
    assert f"number 4 of {GROUP}" in found[0].call
