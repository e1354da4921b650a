"""Jobs with scikit-learn, XGBoost and AWS's own algorithms, as users of the SageMaker SDK write them."""

from __future__ import annotations

_ECR = "dkr.ecr.us-east-1.amazonaws.com"
_GROUPS = "g1=InstanceGroup('g1','ml.m5.xlarge',2); g2=InstanceGroup('g2','ml.c5.xlarge',1)\n"


def _sklearn(arguments: str = "", fit: str = "", version: str = "1.2-1") -> str:
    return (
        f"go(SKLearn('train.py',framework_version='{version}',source_dir=SRC,role=ROLE,"
        f"instance_type='ml.m5.xlarge',{arguments}){fit})"
    )


def _xgboost(arguments: str = "", fit: str = "", version: str = "1.7-1", instances: str = "**CPU") -> str:
    estimator = (
        f"XGBoost('train.py',framework_version='{version}',source_dir=SRC,role=ROLE,{instances},{arguments})"
    )
    return f"go({estimator}{fit})"


def _own(image: str, arguments: str = "", fit: str = "", instances: str = "1,'ml.m5.xlarge'") -> str:
    return f"e=Estimator('{image}',ROLE,{instances},{arguments})\n{fit or 'go(e)'}"


KMEANS = f"382416733822.{_ECR}/kmeans:1"
LINEAR = f"382416733822.{_ECR}/linear-learner:1"
XGB = f"683313688378.{_ECR}/sagemaker-xgboost:1.7-1"
IMAGES = f"811284229777.{_ECR}/image-classification:1"

SKLEARN = {
    "plain": _sklearn(),
    "positional": (
        "go(SKLearn('train.py','1.2-1','py3',SRC,{'n':3,'criterion':'gini'},role=ROLE,instance_type='ml.m5.xlarge'))"
    ),
    "no_source_dir": (
        "go(SKLearn(entry_point='SRC/train.py',framework_version='1.2-1',role=ROLE,instance_type='ml.c4.xlarge'))"
    ),
    "one_instance": _sklearn("instance_count=1"),
    "two_instances": _sklearn("instance_count=2"),
    **{f"version_{version}": _sklearn(version=version) for version in ("0.20.0", "0.23-1", "1.0-1", "1.4-2")},
    "version_unknown": _sklearn(version="1.2"),
    "version_missing": "go(SKLearn('train.py',source_dir=SRC,role=ROLE,**CPU))",
    "python_2": _sklearn("py_version='py2'"),
    "image": _sklearn("image_uri=IMAGE"),
    "image_without_version": "go(SKLearn('train.py',image_uri=IMAGE,source_dir=SRC,role=ROLE,**CPU),job_name=None)",
    "image_region": _sklearn("image_uri_region='eu-west-1'"),
    "gpu": _sklearn().replace("ml.m5.xlarge", "ml.p3.8xlarge"),
    "gpu_g5": _sklearn().replace("ml.m5.xlarge", "ml.g5.xlarge"),
    "trainium": _sklearn().replace("ml.m5.xlarge", "ml.trn1.2xlarge"),
    "graviton": _sklearn(version="1.0-1").replace("ml.m5.xlarge", "ml.c6g.xlarge"),
    "distribution": _sklearn("distribution={'mpi':{'enabled':True}}"),
    "old_names": (
        "go(SKLearn('train.py','0.23-1',source_dir=SRC,role=ROLE,train_instance_type='ml.c5.xlarge',"
        "train_max_run=600,train_volume_size=20))"
    ),
    "name": _sklearn(fit=",job_name=None"),
    "base_name": _sklearn("base_job_name='forest'", ",job_name=None"),
    "hyperparameters": _sklearn(
        "hyperparameters={'n-estimators':100,'max_leaf_nodes':30,'lr':1e-3,'features':'a b c','t':True,'n':None,"
        "'l':[1,2],'d':{'k':'v'}}"
    ),
    "set_hyperparameters": (
        "e=SKLearn('train.py','1.2-1',source_dir=SRC,role=ROLE,instance_type='ml.m5.xlarge',hyperparameters={'a':1})\n"
        "e.set_hyperparameters(b='x',a=2); go(e)"
    ),
    "channels": _sklearn(
        fit=",{'train':TrainingInput('s3://my-data/train',content_type='text/csv'),'test':'s3://my-data/test'}"
    ),
    "string": _sklearn(fit=",'s3://my-data/train'"),
    "no_inputs": _sklearn(fit=",None"),
    "dependencies": _sklearn("dependencies=['EXTRA_DEP']"),
    "code_and_output": _sklearn("output_path='s3://my-data/out',code_location='s3://my-data/code'"),
    "output_kms": _sklearn("output_path='s3://my-data/out',output_kms_key='k1',volume_kms_key='k2'"),
    "spot": _sklearn(
        "use_spot_instances=True,max_run=3600,max_wait=7200,checkpoint_s3_uri='s3://my-data/checkpoints'"
    ),
    "isolation": _sklearn("enable_network_isolation=True"),
    "vpc": _sklearn("subnets=['subnet-a'],security_group_ids=['sg-1'],encrypt_inter_container_traffic=True"),
    "metrics": _sklearn(
        "metric_definitions=[{'Name':'median-AE','Regex':'AE-at-50th-percentile: ([0-9.]+).*$'}]"
    ),
    "time_series": _sklearn("enable_sagemaker_metrics=True"),
    "environment": _sklearn("environment={'A':'1'},tags=[{'Key':'a','Value':'b'}]"),
    "log_level": _sklearn("container_log_level=10"),
    "hook_off": _sklearn("debugger_hook_config=False,disable_profiler=True"),
    "s3_source": "go(SKLearn('train.py','1.2-1','py3','s3://my-data/code/sourcedir.tar.gz',role=ROLE,**CPU))",
    "warm_pool": _sklearn("keep_alive_period_in_seconds=600"),
    "retries": _sklearn("max_retry_attempts=2"),
    "region": _sklearn("sagemaker_session=session('eu-central-1')"),
    "china": _sklearn("sagemaker_session=session('cn-north-1')"),
    "experiment": _sklearn(fit=",experiment_config={'ExperimentName':'e','TrialName':'t'}"),
    "imported": (
        "from sagemaker.sklearn.estimator import SKLearn\n"
        "go(SKLearn(entry_point='train.py',source_dir=SRC,framework_version='1.0-1',instance_type='ml.m5.large',role=ROLE))"
    ),
    "tuner": (
        "e=SKLearn('train.py','1.2-1',source_dir=SRC,role=ROLE,instance_type='ml.m5.xlarge',hyperparameters={'a':1})\n"
        "HyperparameterTuner(e,'auc',{'n-estimators':IntegerParameter(20,100),'c':CategoricalParameter(['a','b'])},"
        "[{'Name':'auc','Regex':'auc=(.*)'}],max_jobs=4).fit(IN,job_name='tune-sklearn',wait=False)"
    ),
}

XGBOOST = {
    "plain": _xgboost(),
    "positional": "go(XGBoost('train.py','1.5-1',SRC,{'max_depth':5},'py3',role=ROLE,**CPU))",
    "two_instances": _xgboost(instances="instance_count=2,instance_type='ml.m5.2xlarge'"),
    "gpu": _xgboost(instances="instance_count=1,instance_type='ml.g4dn.xlarge'"),
    "gpu_old": _xgboost(version="1.0-1", instances="instance_count=1,instance_type='ml.p3.2xlarge'"),
    **{
        f"version_{version}": _xgboost(version=version)
        for version in (
            "0.90-1",
            "0.90-2",
            "1.0-1",
            "1.2-1",
            "1.2-2",
            "1.3-1",
            "1.5-1",
            "3.0-5",
            "1",
            "latest",
        )
    },
    "version_1.1": _xgboost(version="1.1-1"),
    "version_unknown": _xgboost(version="1.7"),
    "python_2": _xgboost("py_version='py2'"),
    "distribution": _xgboost("distribution={'mpi':{'enabled':True}}"),
    "image": _xgboost("image_uri=IMAGE", ",job_name=None"),
    "image_region": _xgboost("image_uri_region='us-west-2'"),
    "name": _xgboost(fit=",job_name=None"),
    "name_1": _xgboost(fit=",job_name=None", version="1"),
    "no_source_dir": "go(XGBoost(entry_point='SRC/train.py',framework_version='1.7-1',role=ROLE,**CPU))",
    "hyperparameters": _xgboost(
        "hyperparameters={'max_depth':'5','eta':'0.2','gamma':4,'objective':'reg:squarederror','num_round':'50',"
        "'verbosity':'2','f':0.5,'t':False,'n':None,'l':['a'],'d':{'a':1}}"
    ),
    "channels": _xgboost(
        fit=",{'train':TrainingInput('s3://my-data/train',content_type='text/libsvm'),"
        "'validation':TrainingInput('s3://my-data/validation',content_type='text/libsvm')}"
    ),
    "spot": _xgboost(
        "use_spot_instances=True,max_run=3600,max_wait=7200,checkpoint_s3_uri='s3://my-data/checkpoints/x'"
    ),
    "checkpoint_local": _xgboost("checkpoint_s3_uri='s3://my-data/c',checkpoint_local_path='/opt/ml/c'"),
    "isolation": _xgboost("enable_network_isolation=True"),
    "metrics": _xgboost("enable_sagemaker_metrics=True,metric_definitions=[{'Name':'a','Regex':'a=(.*)'}]"),
    "hook": _xgboost(
        "debugger_hook_config=DebuggerHookConfig('s3://my-data/d',{'save_interval':'5'},"
        "collection_configs=[CollectionConfig('metrics',{'save_interval':'5'})])"
    ).replace("'s3://my-data/d',{", "'s3://my-data/d',hook_parameters={"),
    "groups": _GROUPS + _xgboost(instances="instance_groups=[g1,g2]"),
    "output": _xgboost("output_path='s3://my-data/out',base_job_name='abalone'", ",job_name=None"),
    "dependencies": _xgboost("dependencies=['EXTRA_DEP'],environment={'A':'1'}"),
    "region": _xgboost("sagemaker_session=session('us-gov-west-1')"),
    "region_1": _xgboost("sagemaker_session=session('eu-west-2')", version="1"),
    "imported": (
        "from sagemaker.xgboost.estimator import XGBoost\n"
        "go(XGBoost(entry_point='train.py',source_dir=SRC,framework_version='1.7-1',hyperparameters={'max_depth':5},"
        "role=ROLE,instance_count=1,instance_type='ml.m5.2xlarge',output_path='s3://my-data/out'))"
    ),
    "tuner": (
        "e=XGBoost('train.py','1.7-1',source_dir=SRC,role=ROLE,**CPU,hyperparameters={'num_round':50})\n"
        "HyperparameterTuner(e,'validation:rmse',{'eta':ContinuousParameter(0,1)},"
        "[{'Name':'validation:rmse','Regex':'rmse=(.*)'}],objective_type='Minimize',max_jobs=4)"
        ".fit(IN,job_name='tune-xgboost',wait=False)"
    ),
}

OWN = {
    "kmeans": _own(
        KMEANS,
        "hyperparameters={'k':10,'feature_dim':784,'epochs':1,'init_method':'kmeans++','half_life_time_size':0}",
    ),
    "kmeans_name": _own(KMEANS, "", "go(e,job_name=None)"),
    "kmeans_set": _own(
        KMEANS, "output_path='s3://my-data/out'", "e.set_hyperparameters(k=10,feature_dim=784); go(e)"
    ),
    "kmeans_recordio": _own(
        KMEANS,
        "",
        "go(e,{'train':TrainingInput('s3://my-data/train',content_type='application/x-recordio-protobuf',"
        "distribution='ShardedByS3Key')})",
    ),
    "linear_learner": _own(
        LINEAR,
        "input_mode='Pipe',hyperparameters={'feature_dim':784,'predictor_type':'binary_classifier',"
        "'mini_batch_size':200,'normalize_data':True,'l1':0.0,'loss':None,'wd':1e-05,'use_bias':'true'}",
        instances="2,'ml.c4.xlarge'",
    ),
    "linear_learner_csv": _own(
        LINEAR,
        "volume_size=20,max_run=3600",
        "e.set_hyperparameters(epochs=16,wd=0.01,loss='absolute_loss',predictor_type='regressor',"
        "normalize_data=True,optimizer='adam',mini_batch_size=100,lr_scheduler_step=100,lr_scheduler_factor=0.99,"
        "lr_scheduler_minimum_lr=0.0001,learning_rate=0.1)\n"
        "go(e,{'train':TrainingInput('s3://my-data/train',distribution='ShardedByS3Key',content_type='text/csv'),"
        "'validation':TrainingInput('s3://my-data/validation',content_type='text/csv')})",
    ),
    "xgboost": _own(
        XGB,
        "volume_size=5,output_path='s3://my-data/out',base_job_name='abalone',hyperparameters={'max_depth':'5',"
        "'eta':'0.2','gamma':'4','min_child_weight':'6','subsample':'0.7','objective':'reg:squarederror',"
        "'num_round':'50','verbosity':'2'}",
        "go(e,{'train':TrainingInput('s3://my-data/train',content_type='text/libsvm'),"
        "'validation':TrainingInput('s3://my-data/validation',content_type='libsvm')},job_name=None)",
        instances="instance_count=1,instance_type='ml.m5.2xlarge'",
    ),
    "xgboost_metrics": _own(
        XGB, "enable_sagemaker_metrics=True,hyperparameters={'objective':'multi:softmax','num_class':10}"
    ),
    "image_classification": _own(
        IMAGES,
        "volume_size=50,max_run=360000,input_mode='File',output_path='s3://my-data/out',hyperparameters="
        "{'num_layers':18,'image_shape':'3,224,224','use_pretrained_model':1,'learning_rate':0.01,"
        "'precision_dtype':'float32'}",
        "go(e,{'train':TrainingInput('s3://my-data/train',distribution='FullyReplicated',"
        "content_type='application/x-recordio',s3_data_type='S3Prefix'),'validation':"
        "TrainingInput('s3://my-data/validation',distribution='FullyReplicated',content_type='application/x-recordio',"
        "s3_data_type='S3Prefix')})",
        instances="instance_count=1,instance_type='ml.p2.xlarge'",
    ),
    "image_classification_augmented": _own(
        IMAGES,
        "input_mode='Pipe'",
        "go(e,{'train':TrainingInput('s3://my-data/train.manifest',s3_data_type='AugmentedManifestFile',"
        "attribute_names=['source-ref','label'],content_type='application/x-recordio',record_wrapping='RecordIO')})",
        instances="1,'ml.p3.2xlarge'",
    ),
    "incremental": _own(
        IMAGES,
        "model_uri='s3://my-data/model.tar.gz',hyperparameters={'epochs':2}",
        instances="1,'ml.p3.2xlarge'",
    ),
    "spot": _own(
        XGB,
        "use_spot_instances=True,max_run=3600,max_wait=3600,checkpoint_s3_uri='s3://my-data/c',"
        "hyperparameters={'num_round':1}",
    ),
    "isolation": _own(KMEANS, "enable_network_isolation=True,hyperparameters={'k':2}"),
    "no_hyperparameters": _own(KMEANS),
    "environment": _own(KMEANS, "environment={'A':'1'},subnets=['s'],security_group_ids=['g']"),
    "tuner": _own(
        XGB,
        "hyperparameters={'num_round':100,'objective':'reg:squarederror'},output_path='s3://my-data/out'",
        "HyperparameterTuner(e,'validation:rmse',{'eta':ContinuousParameter(0,1),'max_depth':IntegerParameter(1,10),"
        "'booster':CategoricalParameter(['gbtree','dart'])},objective_type='Minimize',max_jobs=4,max_parallel_jobs=2)"
        ".fit(IN,job_name='tune-own',wait=False)",
    ),
    "file_system": _own(
        KMEANS,
        "",
        "go(e,{'train':FileSystemInput('fs-0123456789abcdef0','FSxLustre','/fsx/train',content_type='text/csv')})",
    ),
}

_CLASS = "1,'ml.c4.xlarge'"
_RECORDS = "RecordSet('s3://my-data/train/.amazon.manifest',1000,50)"

CLASSES = {
    "kmeans": f"go(KMeans(ROLE,2,'ml.c4.8xlarge',k=10,tol=0.01,max_iterations=5,eval_metrics=['msd']),{_RECORDS})",
    "kmeans_positional": f"go(KMeans(ROLE,{_CLASS},10,'random',30),{_RECORDS},job_name=None,mini_batch_size=500)",
    "pca": f"go(PCA(ROLE,3,'ml.c4.xlarge',num_components=5,subtract_mean=True,algorithm_mode='randomized'),{_RECORDS})",
    "lda": f"go(LDA(ROLE,'ml.c4.xlarge',7,0.5,output_path='s3://my-data/o'),{_RECORDS},mini_batch_size=1000)",
    "lda_without_batch": f"go(LDA(ROLE,'ml.c4.xlarge',7),{_RECORDS})",
    "linear_learner": (
        f"e=LinearLearner(ROLE,{_CLASS},'regressor',loss='absolute_loss',use_bias=False,wd=1e-05,epochs='16')\n"
        f"e.learning_rate=1; go(e,[{_RECORDS},RecordSet('s3://my-data/v',10,50,channel='validation')])"
    ),
    "factorization_machines": (
        f"go(FactorizationMachines(ROLE,{_CLASS},num_factors=10,predictor_type='binary_classifier',epochs=3,"
        f"clip_gradient=5,bias_init_value=0,base_job_name='fm'),{_RECORDS},mini_batch_size=100)"
    ),
    "ntm": f"go(NTM(ROLE,{_CLASS},20,encoder_layers=[100,50],batch_norm=True),{_RECORDS},mini_batch_size=256)",
    "randomcutforest": f"go(RandomCutForest(ROLE,{_CLASS},num_trees=50,num_samples_per_tree=512),{_RECORDS})",
    "knn": f"go(KNN(ROLE,{_CLASS},k=5,sample_size=1000,predictor_type='classifier',index_metric='L2'),{_RECORDS})",
    "object2vec": (
        f"go(Object2Vec(ROLE,{_CLASS},epochs=2,enc0_max_seq_len=50,enc0_vocab_size=1000,enc_dim=64,dropout=0.1,"
        f"enc0_network='hcnn',tied_token_embedding_weight=True),{_RECORDS})"
    ),
    "ipinsights": f"go(IPInsights(ROLE,{_CLASS},num_entity_vectors=20000,vector_dim=128),{_RECORDS})",
    "file_system": (
        f"go(KMeans(ROLE,{_CLASS},k=2,subnets=['s'],security_group_ids=['g']),"
        "FileSystemRecordSet('fs-0123456789abcdef0','EFS','/data',10,3))"
    ),
    "wrong_value": f"KMeans(ROLE,{_CLASS},k='many')",
    "tuner": (
        f"e=LinearLearner(ROLE,{_CLASS},predictor_type='binary_classifier')\n"
        "HyperparameterTuner(e,'validation:objective_loss',{'l1':ContinuousParameter(0.001,0.1)},max_jobs=2)"
        f".fit([{_RECORDS},RecordSet('s3://my-data/v',10,50,channel='validation')],job_name='tune-class',wait=False,"
        "mini_batch_size=20)"
    ),
}
"""The SDK's classes for AWS's own algorithms."""


def _rl(toolkit: str, arguments: str = "") -> str:
    return f"go(RLEstimator('train.py',{toolkit},source_dir=SRC,role=ROLE,**CPU,{arguments}))"


_OLD = "RLToolkit.COACH,'0.11.0',RLFramework.MXNET"

RL = {
    "coach": _rl(
        _OLD, "dependencies=['EXTRA_DEP'],output_path='s3://my-data/o',hyperparameters={'a':1,'b':'c'}"
    ),
    "ray_gpu": _rl("RLToolkit.RAY,'1.6.0',RLFramework.PYTORCH").replace("**CPU", "**P4"),
    "ray_tensorflow": _rl("RLToolkit.RAY,'0.8.5',RLFramework.TENSORFLOW", "base_job_name='rl'"),
    "image": _rl("image_uri=IMAGE", "metric_definitions=[{'Name':'a','Regex':'a=(.*)'}]"),
    "region": _rl(_OLD, "sagemaker_session=session('eu-west-3')"),
    "no_image": _rl("RLToolkit.COACH,'0.11.1',RLFramework.MXNET"),
    "no_region": _rl("RLToolkit.RAY,'1.6.0',RLFramework.PYTORCH", "sagemaker_session=session('eu-north-1')"),
    "no_version": _rl("RLToolkit.RAY"),
}

ALGORITHMS = {
    **{f"sklearn/{name}": code for name, code in SKLEARN.items()},
    **{f"xgboost/{name}": code for name, code in XGBOOST.items()},
    **{f"algorithm/{name}": code for name, code in OWN.items()},
    **{f"rl/{name}": code for name, code in RL.items()},
    **{f"class/{name}": code for name, code in CLASSES.items()},
}
