"""Files with secrets as people have them. Every value is drawn here: no literal alarms a secret scanner."""

from __future__ import annotations

import base64
import random
import string

HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
WORD = ALNUM + "_"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"


def secret_files(seed: int) -> dict[str, tuple[str, str]]:
    """For each kind of secret: the name of a file, and its content."""
    draw = random.Random(seed)

    def of(alphabet: str, length: int) -> str:
        return "".join(draw.choice(alphabet) for _ in range(length))

    def password(length: int = 14) -> str:
        """With a digit and both cases, as generators of passwords make them."""
        text = [*of(ALNUM, length - 3), draw.choice("23456789"), draw.choice("KQXZ"), draw.choice("jkvw")]
        draw.shuffle(text)
        return "".join(text)

    def b64(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    key = of(BASE64, 64)
    aws = password(40)
    return {
        "AWS secret key, exported": ("setup.sh", f"#!/bin/sh\nexport AWS_SECRET_ACCESS_KEY={aws}\n"),
        "AWS secret key, quoted": ("run.sh", f'export AWS_SECRET_ACCESS_KEY="{aws}"\npython train.py\n'),
        "AWS secret key, set in Python": ("env.py", f"os.environ['AWS_SECRET_ACCESS_KEY'] = '{aws}'\n"),
        "AWS keys, profile": (
            "cloud.ini",
            f"[default]\naws_access_key_id = AKIA{of(UPPER, 16)}\naws_secret_access_key = {aws}\n",
        ),
        "AWS session token": ("session.sh", f"export AWS_SESSION_TOKEN={password(300)}\n"),
        "AWS secret key, boto3": ("store.py", f's3 = boto3.client("s3", aws_secret_access_key="{aws}")\n'),
        "GitLab token": ("ci.sh", f"git clone https://x/y # {'glpat'}-{of(URLSAFE, 20)}\n"),
        "GitLab deploy token": ("deploy.txt", f"{'gldt'}-{of(URLSAFE, 20)}\n"),
        "GitHub token": ("hub.py", f"login('{'ghp'}_{of(ALNUM, 36)}')\n"),
        "GitHub fine-grained token": ("hub2.py", f"login('{'github'}_pat_{of(WORD, 82)}')\n"),
        "OpenAI key": ("chat.py", f"client = OpenAI('{'sk'}-{of(ALNUM, 20)}T3BlbkFJ{of(ALNUM, 20)}')\n"),
        "OpenAI project key": ("chat2.py", f"client = OpenAI('{'sk'}-proj-{of(URLSAFE, 120)}')\n"),
        "Anthropic key": ("claude.py", f"x = '{'sk'}-ant-api03-{of(URLSAFE, 93)}AA'\n"),
        "Google API key": ("maps.js", f"const k = '{'AIza'}{of(URLSAFE, 35)}';\n"),
        "Google OAuth secret": ("oauth.json", f'{{"x": "{"GOCSPX"}-{of(ALNUM, 28)}"}}\n'),
        "Google service account": (
            "account.json",
            f'{{"private_key": "-----BEGIN {"PRIVATE"} KEY-----\\n{key}\\n"}}\n',
        ),
        "Google OAuth token": ("drive.py", f"creds('{'ya29'}.{of(URLSAFE, 120)}')\n"),
        ".npmrc with a token": (".npmrc", f"//registry.npmjs.org/:_authToken={'npm'}_{of(ALNUM, 36)}\n"),
        ".npmrc with a UUID": (
            ".npmrc",
            f"//registry.npmjs.org/:_authToken={of(HEX, 8)}-{of(HEX, 4)}-4{of(HEX, 3)}-9{of(HEX, 3)}-{of(HEX, 12)}\n",
        ),
        ".npmrc with a password": (".npmrc", f"//npm.corp.net/:_password={b64(password())}\n"),
        ".pgpass": (".pgpass", f"db.corp.net:5432:prod:app:{password()}\n"),
        "pip.conf": ("pip.conf", f"[global]\nindex-url = https://ci:{password()}@pypi.corp.net/simple\n"),
        "requirements with a password": (
            "requirements.txt",
            f"--extra-index-url https://ci:{password()}@pypi.corp.net/simple\nnumpy\n",
        ),
        "docker config": (
            ".docker/config.json",
            f'{{"auths": {{"r.corp.net": {{"auth": "{b64("ci:" + password())}"}}}}}}\n',
        ),
        "docker config, elsewhere": (
            "config.json",
            f'{{"auths": {{"r.corp.net": {{"auth": "{b64("ci:" + password())}"}}}}}}\n',
        ),
        "database URL": ("settings.toml", f'url = "postgresql://app:{password()}@db.corp.net:5432/prod"\n'),
        "Redis URL without a user": ("cache.yaml", f"broker: redis://:{password()}@cache.corp.net:6379/0\n"),
        "MongoDB URL": ("mongo.py", f'db = connect("mongodb+srv://app:{password()}@c0.mongodb.net/x")\n'),
        "proxy URL": ("proxy.sh", f"export https_proxy=http://ann:{password()}@proxy.corp.net:3128\n"),
        "git remote": ("clone.sh", f"git clone https://ann:{password(20)}@git.corp.net/x.git\n"),
        "PGPASSWORD": ("dump.sh", f"PGPASSWORD={password()} pg_dump prod\n"),
        "DB_PASS": ("config.env", f"DB_PASS={password()}\n"),
        "GITHUB_PAT": ("tokens.env", f"GITHUB_PAT={password(40)}\n"),
        "wandbApiKey": ("wandb.yaml", f"wandbApiKey: {of(HEX, 39)}7\n"),
        "W&B key in Python": (
            "track.py",
            f'wandb.login(key="x"); os.environ["WANDB_API_KEY"] = "{of(HEX, 39)}7"\n',
        ),
        "W&B key, login": ("track2.py", f'wandb.login(key="{of(HEX, 39)}7")\n'),
        "W&B key, login in a notebook": (
            "c.ipynb",
            f'{{"cells": [{{"source": ["wandb.login(key=\\"{of(HEX, 39)}7\\")\\n"]}}]}}',
        ),
        "annotated name": ("typed.py", f'api_key: str = "{password(32)}"\n'),
        "default of an argument": (
            "args.py",
            f'add_argument("--api-key", type=str, default="{password(32)}")\n',
        ),
        "Dockerfile, without an equals sign": (
            "Dockerfile",
            f"FROM python:3.12\nENV API_TOKEN {password(24)}\n",
        ),
        "ADO connection string": (
            "ado.py",
            f'connect("Server=tcp:db.corp.net;User ID=app;Password={password()};Encrypt=True")\n',
        ),
        "libpq connection string": (
            "pq.py",
            f'connect("host=db user=app password={password()} dbname=prod")\n',
        ),
        "curl with a password": ("fetch.sh", f"curl -s -u app:{password()} https://x.corp.net\n"),
        "sshpass": ("copy.sh", f"sshpass -p {password()} scp a b:\n"),
        "key of a Kubernetes client": (
            "cluster.yaml",
            f"    client-key-data: {b64('-----BEGIN RSA ' + 'PRIVATE KEY-----' + chr(10) + key)}\n",
        ),
        "Azure shared access signature": (
            "sas.py",
            f'get("https://x.blob.core.windows.net/c?sv=2022-11-02&ss=b&sig={of(ALNUM, 43)}%3D")\n',
        ),
        "W&B key in netrc syntax": ("login.txt", f"machine api.wandb.ai login user password {of(HEX, 40)}\n"),
        "Hugging Face token": ("model.py", f"login('{'hf'}_{of(ALNUM, 34)}')\n"),
        "Hugging Face token in a notebook": (
            "a.ipynb",
            f'{{"cells": [{{"source": ["%env HF_TOKEN={"hf"}_{of(ALNUM, 34)}\\n"]}}]}}',
        ),
        "password in a notebook": (
            "b.ipynb",
            f'{{"cells": [{{"source": ["os.environ[\\"DB_PASSWORD\\"] = \\"{password()}\\"\\n"]}}]}}',
        ),
        "Slack token": (
            "slack.yaml",
            f"slack: {'xoxb'}-{of('123456789', 12)}-{of('123456789', 13)}-{of(ALNUM, 24)}\n",
        ),
        "Slack webhook": (
            "notify.sh",
            f"curl https://hooks.slack.com/services/T{of(UPPER, 8)}/B{of(UPPER, 8)}/{of(ALNUM, 24)}\n",
        ),
        "Discord webhook": (
            "discord.py",
            f'post("https://discord.com/api/webhooks/{of("123456789", 18)}/{of(URLSAFE, 68)}")\n',
        ),
        "Stripe key": ("pay.rb", f"Stripe.api_key = '{'sk'}_live_{of(ALNUM, 24)}'\n"),
        "SendGrid key": ("mail.py", f"send('{'SG'}.{of(URLSAFE, 22)}.{of(URLSAFE, 43)}')\n"),
        "PyPI token": ("publish.sh", f"twine upload -p {'pypi'}-AgEIcHlwaS5vcmc{of(URLSAFE, 150)} dist/*\n"),
        "Docker Hub token": ("push.sh", f"docker login -p {'dckr'}_pat_{of(URLSAFE, 27)}\n"),
        "DigitalOcean token": ("do.tf", f'token = "{"dop"}_v1_{of(HEX, 64)}"\n'),
        "Databricks token": ("brick.py", f"connect('{'dapi'}{of(HEX, 32)}')\n"),
        "Azure storage key": (
            "blob.cs",
            f'var c = "DefaultEndpointsProtocol=https;AccountKey={of(BASE64, 86)}==";\n',
        ),
        "Azure client secret": ("azure.yaml", f"clientSecret: {of(ALNUM, 3)}8Q~{of(ALNUM, 34)}\n"),
        "Vault token": ("vault.sh", f"vault login {'hvs'}.{of(URLSAFE, 90)}\n"),
        "Telegram bot": ("bot.go", f'bot("{of("123456789", 10)}:AA{of(URLSAFE, 33)}")\n'),
        "Replicate token": ("replicate.py", f"x = '{'r8'}_{of(ALNUM, 37)}'\n"),
        "NVIDIA key": ("ngc.sh", f"ngc {'nvapi'}-{of(URLSAFE, 64)}\n"),
        "JSON web token": (
            "jwt.txt",
            f"{'eyJ'}{of(URLSAFE, 33)}.{'eyJ'}{of(URLSAFE, 60)}.{of(URLSAFE, 43)}\n",
        ),
        "authorization header": (
            "get.sh",
            f'curl -H "Authorization: Bearer {password(32)}" https://x.corp.net\n',
        ),
        "basic authorization": (
            "get.py",
            f'headers = {{"Authorization": "Basic {b64("ann:" + password())}"}}\n',
        ),
        "password in Python": ("db.py", f'connect(host="db", password="{password()}")\n'),
        "password in YAML": ("db.yaml", f"database:\n  user: app\n  password: {password()}\n"),
        "password in JSON": ("db.json", f'{{"password": "{password()}"}}\n'),
        "password in a Dockerfile": ("Dockerfile", f"FROM python:3.12\nENV API_TOKEN={password(24)}\n"),
        "kebab-case name": ("app.properties", f"client-secret={password(24)}\n"),
        "SSH key": ("deploy_key", f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----\n{key}\n"),
        "PuTTY key": ("deploy.txt", f"{'PuTTY'}-User-Key-File-3: ssh-ed25519\nEncryption: none\n"),
        "age key": ("backup.txt", f"{'AGE'}-SECRET-KEY-1{of(UPPER, 58)}\n"),
        "key store": ("release.jks", "\ufffd"),
        "Kaggle key": ("kaggle.json", f'{{"username": "ann", "key": "{of(HEX, 32)}"}}\n'),
        "Git credentials": (".git-credentials", f"https://ann:{password()}@github.com\n"),
    }
