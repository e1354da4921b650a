"""Estimators of AWS's own algorithms, as in `sagemaker.amazon`. Their images train without a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from cloudtrain.aws import Aws
from cloudtrain.aws.algorithm_images import algorithm_image
from cloudtrain.errors import InvalidJob
from cloudtrain.estimator import Estimator
from cloudtrain.job import Job
from cloudtrain.sagemaker._record_sets import (
    FileSystemRecordSet,
    RecordSet,
    check_location,
    upload_matrix,
)
from cloudtrain.sagemaker.utils import sagemaker_timestamp
from cloudtrain.session import Session
from cloudtrain.storage import join_uri

Records = (
    RecordSet | FileSystemRecordSet | Sequence[RecordSet | FileSystemRecordSet] | Mapping[str, Any] | str
)


def _boolean(value: Any) -> bool:
    return value.lower() == "true" if isinstance(value, str) else bool(value)


_TYPES: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "bool": _boolean,
    "list": list,
    "str": str,
}


class _Hyperparameter:
    """An attribute with the value of a hyperparameter, converted to its type. None removes it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        if self.name not in owner.hyperparameters:
            raise AttributeError(self.name)
        return owner.hyperparameters[self.name]

    def __set__(self, owner: Any, value: Any) -> None:
        if value is None:
            owner.hyperparameters.pop(self.name, None)
            return
        try:
            owner.hyperparameters[self.name] = _TYPES[self.kind](value)
        except (TypeError, ValueError):
            raise InvalidJob(f"hyperparameters.{self.name}: expected {self.kind}, got {value!r}") from None


class AmazonAlgorithmEstimatorBase(Estimator):
    """A job with one of AWS's own algorithms, with the arguments of the SageMaker SDK, version 2.

    Args:
        role, instance_count, instance_type: as for `Estimator`.
        positional: the hyperparameters of the class, in the SDK's order.
        data_location: the URI for the records of `record_set`; defaults to a folder in the default bucket.
        arguments: hyperparameters, and other arguments of `Estimator`.

    Raises:
        InvalidJob: as `Estimator`; or a hyperparameter has a value of another type.
        PlatformError: no AWS region is configured.
    """

    repo_name: ClassVar[str]
    repo_version: ClassVar[str] = "1"
    parameters: ClassVar[str] = ""
    """The hyperparameters in the order of positional arguments: ``name=name in the request:type``."""

    DEFAULT_MINI_BATCH_SIZE: ClassVar[int | None] = None
    _hyperparameters: ClassVar[list[str]]

    feature_dim = _Hyperparameter("feature_dim", "int")
    mini_batch_size = _Hyperparameter("mini_batch_size", "int")

    def __init_subclass__(cls) -> None:
        cls._hyperparameters = []
        for one in cls.parameters.split():
            names, _, kind = one.partition(":")
            name, _, sent = names.partition("=")
            setattr(cls, name, _Hyperparameter(sent or name, kind or "str"))
            cls._hyperparameters.append(name)

    def __init__(
        self,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        *positional: Any,
        data_location: str | None = None,
        **arguments: Any,
    ) -> None:
        if len(positional) > len(self._hyperparameters):
            raise InvalidJob(
                f"{type(self).__name__} takes {3 + len(self._hyperparameters)} positional arguments"
            )
        given = dict(zip(self._hyperparameters, positional, strict=False))
        for name in (*self._hyperparameters, "feature_dim", "mini_batch_size"):
            if name in arguments:
                given[name] = arguments.pop(name)
        if not arguments.get("image_uri"):
            region = Aws.of(arguments.get("sagemaker_session")).region
            arguments["image_uri"] = algorithm_image(self.repo_name, region, self.repo_version)
        super().__init__(
            role=role,
            instance_count=instance_count,
            instance_type=instance_type,
            **arguments,
        )
        self._data_location = data_location and check_location(data_location)
        for name, value in given.items():
            setattr(self, name, value)

    @property
    def data_location(self) -> str:
        """The URI for records; by default a folder in the default bucket, which is created if it does not exist."""
        if not self._data_location:
            session = self._own_session()
            parts = filter(None, [session.default_bucket_prefix, "sagemaker-record-sets"])
            self._data_location = join_uri(f"s3://{session.default_bucket()}", *parts) + "/"
        return self._data_location

    @data_location.setter
    def data_location(self, uri: str) -> None:
        self._data_location = check_location(uri)

    def record_set(
        self,
        train: Any,
        labels: Any = None,
        channel: str = "train",
        encrypt: bool = False,
        distribution: str = "ShardedByS3Key",
    ) -> RecordSet:
        """Write a numpy matrix to S3 as recordio-protobuf, one object for each instance.

        Args:
            labels: a vector with the label of each row.
            channel: the name of the channel that the records are for.
            encrypt: whether S3 encrypts the objects with AES-256.

        Raises:
            CloudtrainError: the arrays have another shape or type.
            StorageError: S3 denies access.
        """
        folder = f"{self.data_location}{type(self).__name__}-{sagemaker_timestamp()}/"
        manifest = upload_matrix(
            self._own_session(), folder, self.instance_count, train, labels, encrypt=encrypt
        )
        rows, columns = train.shape
        return RecordSet(manifest, rows, columns, channel=channel, distribution=distribution)

    def fit(  # type: ignore[override] # as in the SDK
        self,
        records: Records | None = None,
        mini_batch_size: int | None = None,
        wait: bool = True,
        logs: bool | str = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> Job:
        """Start the job: see `Estimator.fit`.

        Args:
            records: a `RecordSet`, a list of those, or channels as for `Estimator.fit`.
            mini_batch_size: defaults to the SDK's value for the algorithm.

        Raises the errors of `Estimator.fit`.
        """
        self.mini_batch_size = mini_batch_size or getattr(self, "mini_batch_size", None)
        return super().fit(records, wait, logs, job_name, experiment_config)  # type: ignore[arg-type]

    def _fields(self, inputs: Any, job_name: str | None, experiment_config: Any) -> dict[str, Any]:
        sets = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if all(isinstance(one, (RecordSet, FileSystemRecordSet)) for one in sets):
            train = [one for one in sets if one.channel == "train" or len(sets) == 1]
            if not train:
                raise InvalidJob("records: there is no channel 'train'")
            self.feature_dim = train[0].feature_dim
            if not hasattr(self, "mini_batch_size"):
                self.mini_batch_size = self._default_mini_batch_size(train[0].num_records)
            inputs = {}
            for one in sets:
                if one.channel in inputs:
                    raise InvalidJob(f"records: two are for the channel {one.channel!r}")
                inputs.update(one.data_channel())
        return super()._fields(inputs, job_name, experiment_config)

    def _default_mini_batch_size(self, records: int) -> int | None:
        most = self.DEFAULT_MINI_BATCH_SIZE
        return most and min(most, max(1, records // self.instance_count))

    def _own_session(self) -> Session:
        given = self.sagemaker_session
        return given if isinstance(given, Session) else Session(getattr(given, "boto_session", given))


class FactorizationMachines(AmazonAlgorithmEstimatorBase):
    """Factorization machines: classification and regression of sparse data."""

    repo_name = "factorization-machines"
    parameters = """
        num_factors:int predictor_type epochs:int clip_gradient:float eps:float rescale_grad:float bias_lr:float
        linear_lr:float factors_lr:float bias_wd:float linear_wd:float factors_wd:float bias_init_method
        bias_init_scale:float bias_init_sigma:float bias_init_value:float linear_init_method linear_init_scale:float
        linear_init_sigma:float linear_init_value:float factors_init_method factors_init_scale:float
        factors_init_sigma:float factors_init_value:float
    """


class IPInsights(AmazonAlgorithmEstimatorBase):
    """Embeddings of pairs of an entity and an IP address, which detect unusual pairs."""

    repo_name = "ipinsights"
    parameters = """
        num_entity_vectors:int vector_dim:int batch_metrics_publish_interval:int epochs:int learning_rate:float
        num_ip_encoder_layers:int random_negative_sampling_rate:int shuffled_negative_sampling_rate:int
        weight_decay:float
    """


class KMeans(AmazonAlgorithmEstimatorBase):
    """K-means clustering."""

    repo_name = "kmeans"
    parameters = """
        k:int init_method max_iterations=local_lloyd_max_iter:int tol=local_lloyd_tol:float
        num_trials=local_lloyd_num_trials:int local_init_method=local_lloyd_init_method half_life_time_size:int
        epochs:int center_factor=extra_center_factor:int eval_metrics:list
    """

    def __init__(self, *positional: Any, **arguments: Any) -> None:
        super().__init__(*positional, **arguments)
        self.hyperparameters["force_dense"] = "True"  # the image needs it for records


class KNN(AmazonAlgorithmEstimatorBase):
    """K nearest neighbours: classification and regression."""

    repo_name = "knn"
    parameters = """
        k:int sample_size:int predictor_type dimension_reduction_type dimension_reduction_target:int index_type
        index_metric faiss_index_ivf_nlists faiss_index_pq_m:int
    """


class LDA(AmazonAlgorithmEstimatorBase):
    """Latent Dirichlet allocation: topics of texts. It trains on one instance."""

    repo_name = "lda"
    parameters = "num_topics:int alpha0:float max_restarts:int max_iterations:int tol:float"

    def __init__(
        self, role: str | None = None, instance_type: str | None = None, *positional: Any, **arguments: Any
    ) -> None:
        arguments.pop("instance_count", None)
        super().__init__(role, 1, instance_type, *positional, **arguments)

    def _default_mini_batch_size(self, records: int) -> int | None:
        raise InvalidJob("mini_batch_size: LDA needs it", hint="Write fit(records, mini_batch_size=...).")


class LinearLearner(AmazonAlgorithmEstimatorBase):
    """Linear models: classification and regression."""

    repo_name = "linear-learner"
    DEFAULT_MINI_BATCH_SIZE = 1000
    parameters = """
        predictor_type binary_classifier_model_selection_criteria target_recall:float target_precision:float
        positive_example_weight_mult epochs:int use_bias:bool num_models:int num_calibration_samples:int init_method
        init_scale:float init_sigma:float init_bias:float optimizer loss wd:float l1:float momentum:float
        learning_rate:float beta_1:float beta_2:float bias_lr_mult:float bias_wd_mult:float use_lr_scheduler:bool
        lr_scheduler_step:int lr_scheduler_factor:float lr_scheduler_minimum_lr:float normalize_data:bool
        normalize_label:bool unbias_data:bool unbias_label:bool num_point_for_scaler:int margin:float quantile:float
        loss_insensitivity:float huber_delta:float early_stopping_patience:int early_stopping_tolerance:float
        num_classes:int accuracy_top_k:int f_beta:float balance_multiclass_weights:bool
    """


class NTM(AmazonAlgorithmEstimatorBase):
    """Neural topic model: topics of texts."""

    repo_name = "ntm"
    parameters = """
        num_topics:int encoder_layers:list epochs:int encoder_layers_activation optimizer tolerance:float
        num_patience_epochs:int batch_norm:bool rescale_gradient:float clip_gradient:float weight_decay:float
        learning_rate:float
    """


class Object2Vec(AmazonAlgorithmEstimatorBase):
    """Embeddings of pairs of objects."""

    repo_name = "object2vec"
    parameters = """
        epochs:int enc0_max_seq_len:int enc0_vocab_size:int enc_dim:int mini_batch_size:int
        early_stopping_patience:int early_stopping_tolerance:float dropout:float weight_decay:float bucket_width:int
        num_classes:int mlp_layers:int mlp_dim:int mlp_activation output_layer optimizer learning_rate:float
        negative_sampling_rate:int comparator_list tied_token_embedding_weight:bool token_embedding_storage_type
        enc0_network enc1_network enc0_cnn_filter_width:int enc1_cnn_filter_width:int enc1_max_seq_len:int
        enc0_token_embedding_dim:int enc1_token_embedding_dim:int enc1_vocab_size:int enc0_layers:int enc1_layers:int
        enc0_freeze_pretrained_embedding:bool enc1_freeze_pretrained_embedding:bool
    """

    def _default_mini_batch_size(self, records: int) -> int | None:
        return 32


class PCA(AmazonAlgorithmEstimatorBase):
    """Principal component analysis."""

    repo_name = "pca"
    DEFAULT_MINI_BATCH_SIZE = 500
    parameters = "num_components:int algorithm_mode subtract_mean:bool extra_components:int"


class RandomCutForest(AmazonAlgorithmEstimatorBase):
    """Random cut forest: detection of outliers."""

    repo_name = "randomcutforest"
    MINI_BATCH_SIZE = 1000
    parameters = "num_samples_per_tree:int num_trees:int eval_metrics:list"

    def _default_mini_batch_size(self, records: int) -> int | None:
        return self.MINI_BATCH_SIZE
