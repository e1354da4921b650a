"""The SDK's classes for AWS's own algorithms: the bytes of their records. `test_golden` compares their requests."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import numpy as np
import pytest
from cloudtrain.sagemaker.amazon import common
from moto import mock_aws
from parity.record_recordio import CASES, recorded

from cloudtrain import sagemaker
from cloudtrain.errors import InvalidJob, StorageError
from cloudtrain.sagemaker import PCA, KMeans

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "recordio.json").read_text())
ROLE = "arn:aws:iam::123456789012:role/R"


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.parametrize("case", CASES)
def test_records_have_the_bytes_of_the_sdk(case: str) -> None:
    pytest.importorskip("scipy")
    assert recorded(case, common) == RECORDED[case]


@mock_aws
def test_a_record_set_has_one_object_for_each_instance_and_a_manifest() -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="mine")
    one = KMeans(ROLE, 2, "ml.c4.xlarge", k=3, data_location="s3://mine/records")
    matrix = np.arange(10, dtype="float32").reshape(5, 2)
    records = one.record_set(matrix, labels=np.arange(5, dtype="float32"), channel="test", encrypt=True)
    assert (records.num_records, records.feature_dim, records.channel) == (5, 2, "test")
    assert records.records_s3_input().distribution == "ShardedByS3Key"
    folder = records.s3_data.removesuffix(".amazon.manifest")
    assert folder.startswith("s3://mine/records/KMeans-2")
    prefix = folder.removeprefix("s3://mine/")

    def read(name: str) -> bytes:
        answer = s3.get_object(Bucket="mine", Key=prefix + name)
        assert answer["ServerSideEncryption"] == "AES256"
        return bytes(answer["Body"].read())

    names = ["matrix_0.pbr", "matrix_1.pbr"]
    assert json.loads(read(".amazon.manifest")) == [{"prefix": folder}, *names]
    assert [read(name).count(b"values") for name in names] == [4, 6]  # features and label of 2 and of 3 rows
    with pytest.raises(InvalidJob, match="1 rows are fewer than 2 instances"):
        one.record_set(matrix[:1])


@mock_aws
def test_records_go_to_the_default_bucket() -> None:
    one = PCA(ROLE, 1, "ml.c4.xlarge", 2)
    records = one.record_set(np.ones((3, 2)))
    assert records.s3_data.startswith("s3://sagemaker-us-east-1-123456789012/sagemaker-record-sets/PCA-")


def test_hyperparameters_are_attributes() -> None:
    one = KMeans(ROLE, 1, "ml.c4.xlarge", k="3")
    one.tol = 1
    assert (one.k, one.tol, one.hyperparameters()) == (
        3,
        1.0,
        {"force_dense": "True", "k": 3, "local_lloyd_tol": 1.0},
    )
    one.k = None
    assert not hasattr(one, "k")
    assert one.image_uri == "382416733822.dkr.ecr.us-east-1.amazonaws.com/kmeans:1"
    with pytest.raises(InvalidJob, match=r"hyperparameters\.k: expected int, got 'x'"):
        one.k = "x"
    with pytest.raises(InvalidJob, match="13 positional arguments"):
        KMeans(*range(20))
    with pytest.raises(StorageError, match="not an S3 URI"):
        one.data_location = "folder"
    assert sagemaker.amazon.kmeans.KMeans is KMeans


def test_records_that_do_not_fit_are_refused() -> None:
    sets = [sagemaker.amazon.amazon_estimator.RecordSet("s3://b/x", 1, 2, channel=name) for name in "aa"]
    one = PCA(ROLE, 1, "ml.c4.xlarge", 2)
    with pytest.raises(InvalidJob, match="there is no channel 'train'"):
        one.prepare(sets)
    sets[0].channel = sets[1].channel = "train"
    with pytest.raises(InvalidJob, match="two are for the channel 'train'"):
        one.prepare(sets)
