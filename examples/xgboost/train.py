"""Classify scikit-learn's breast cancer data with XGBoost. Each rank has every n-th row; the trees are the same on all.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import hashlib
import os
import socket

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:  # the ranks find one another through the tracker, which XGBoost leaves to you to start
    tracker = RabitTracker(
        n_workers=ranks, host_ip=socket.gethostbyname(address), port=port, sortby="task", timeout=120
    )
    tracker.start()

with collective.CommunicatorContext(
    dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=os.environ["DMLC_TASK_ID"], dmlc_retry=60
):
    x, y = load_breast_cancer(return_X_y=True)
    test = np.arange(len(y)) % 5 == 0
    own = slice(rank, None, ranks)
    data = xgb.DMatrix(x[~test][own], y[~test][own])
    model = xgb.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, data, num_boost_round=20
    )
    right = (model.predict(xgb.DMatrix(x[test])) > 0.5) == y[test]
    rows = collective.allreduce(np.array([data.num_row()]), collective.Op.SUM)[0]
    trees = hashlib.sha256(model.save_raw("json")).hexdigest()[:8]
    print(
        f"rank {collective.get_rank()} of {ranks}: trees {trees} of {rows} rows, accuracy={right.mean():.3f}",
        flush=True,
    )
    if rank == 0:
        model.save_model(os.path.join(os.environ["SM_MODEL_DIR"], "model.json"))

if rank == 0:
    tracker.wait_for(60)
