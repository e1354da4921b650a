"""A suite like Horovod's, with one test for each outcome that the runner distinguishes."""

from __future__ import annotations

import unittest
from unittest import mock

import horovod.torch as hvd
import torch
from horovod.runner.util.threads import in_thread


class OwnTests(unittest.TestCase):
    def setUp(self) -> None:
        hvd.init()

    def test_passes(self) -> None:
        sums = hvd.allreduce(torch.ones(2), op=hvd.Sum)
        assert sums.tolist() == [hvd.size()] * 2

    def test_passes_with_replaced_modules(self) -> None:
        thread = in_thread(target=mock.Mock())
        thread.join(10)
        assert thread.daemon

    def test_fails_on_the_last_rank(self) -> None:
        assert hvd.rank() < hvd.size() - 1, "the last rank"

    def test_is_skipped(self) -> None:
        self.skipTest("no reason")

    def test_is_skipped_in_its_subtest(self) -> None:
        with self.subTest("one"):
            self.skipTest("no reason")
