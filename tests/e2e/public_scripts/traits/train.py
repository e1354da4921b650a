"""A script with the traits of public ones: it is launched without `distribution`, and sets up two hosts by itself."""

import argparse
import csv
import gzip
import json
import os
import shutil
import sys

import torch
import torch.distributed as dist
from model_def import Net

launcher_variables = sorted({"RANK", "WORLD_SIZE", "LOCAL_RANK"} & os.environ.keys())

learning_rate = 0.0
steps = 0
with open(sys.argv[1]) as file:
    exec(file.read())  # the configuration lies in the working folder

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("overrides", nargs="*")
parser.add_argument("-v", action="count", default=0)
parser.add_argument("--save-model", action="store_true")
parser.add_argument("--layers", nargs="+", type=int)
parser.add_argument("--tag", action="append")
parser.add_argument("--test-file")
parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))
parser.add_argument("--current-host", default=os.environ["SM_CURRENT_HOST"])
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--output-data-dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
arguments = parser.parse_args()

with gzip.open(os.path.join(arguments.train, "train.csv.gz"), "rt") as file:
    rows = [[float(value) for value in row] for row in csv.reader(file)]
with open(arguments.test_file) as file:
    test_lines = len(file.readlines())

rank = arguments.hosts.index(arguments.current_host)
dist.init_process_group("gloo", rank=rank, world_size=len(arguments.hosts))
torch.manual_seed(0)
model = Net(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
data = torch.tensor(rows[rank :: len(arguments.hosts)])
for step in range(steps):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data[:, :1]), data[:, 1:])
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= len(arguments.hosts)
    optimizer.step()
    print(f"step {step + 1}: loss={loss.item():.4f}", flush=True)

report = {
    "argv": sys.argv[1:],
    "launcher variables": launcher_variables,
    "test lines": test_lines,
    "weights": [parameter.tolist() for parameter in model.parameters()],
}
with open(os.path.join(arguments.output_data_dir, f"{arguments.current_host}.json"), "w") as file:
    json.dump(report, file)
if rank == 0 and arguments.save_model:
    torch.save(model.state_dict(), os.path.join(arguments.model_dir, "model.pth"))
    os.makedirs(os.path.join(arguments.model_dir, "code"))
    shutil.copy("train.py", os.path.join(arguments.model_dir, "code"))
dist.destroy_process_group()
