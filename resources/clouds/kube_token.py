"""A credential plugin for kubeconfigs: prints an ExecCredential with a fresh token for a cluster's API.

Run by kubectl, helm and the Kubernetes client as `python kube_token.py eks CLUSTER REGION`, `... gke` or `... nebius`.
It reads the cloud's default chain, or what the kubeconfig's `env` gives it.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import sys

LIFETIME = datetime.timedelta(minutes=10)
"""EKS accepts a token for about 15 minutes."""


def eks_token(cluster: str, region: str) -> tuple[str, str]:
    """The token (a presigned GetCallerIdentity that names the cluster) and when to ask for the next."""
    import boto3  # noqa: PLC0415 - an SDK is imported where it is used
    from botocore.signers import RequestSigner  # noqa: PLC0415 - as above

    session = boto3.Session(region_name=region)
    client = session.client("sts", region_name=region)
    signer = RequestSigner(
        client.meta.service_model.service_id, region, "sts", "v4", session.get_credentials(), session.events
    )
    url = signer.generate_presigned_url(
        {
            "method": "GET",
            "url": f"https://sts.{region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {"x-k8s-aws-id": cluster},
            "context": {},
        },
        region_name=region,
        expires_in=60,
        operation_name="",
    )
    token = "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    return token, (datetime.datetime.now(datetime.UTC) + LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")


def gke_token() -> tuple[str, str]:
    """Google's own access token; MODELPLANE_GKE_CREDENTIALS holds a service account's JSON where one is set."""
    import google.auth  # noqa: PLC0415 - an SDK is imported where it is used
    from google.auth.transport.requests import Request  # noqa: PLC0415 - as above
    from google.oauth2 import service_account  # noqa: PLC0415 - as above

    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    given = os.environ.get("MODELPLANE_GKE_CREDENTIALS")
    if given:
        credentials = service_account.Credentials.from_service_account_info(json.loads(given), scopes=scopes)
    else:
        credentials, _ = google.auth.default(scopes=scopes)
    credentials.refresh(Request())
    return credentials.token, credentials.expiry.strftime("%Y-%m-%dT%H:%M:%SZ")


def nebius_token() -> tuple[str, str]:
    """Nebius's IAM token; MODELPLANE_NEBIUS_CREDENTIALS holds a service account's credentials file where one is set."""
    from nebius.base.service_account.credentials_file import (  # noqa: PLC0415 - an SDK is imported where it is used
        ServiceAccountCredentials,
    )
    from nebius.base.service_account.service_account import ServiceAccount  # noqa: PLC0415 - as above
    from nebius.sdk import SDK  # noqa: PLC0415 - as above

    account, given = None, os.environ.get("MODELPLANE_NEBIUS_CREDENTIALS")
    if given:
        subject = ServiceAccountCredentials.from_json(json.loads(given)).subject_credentials
        account = ServiceAccount(subject.parse_private_key(), subject.kid, subject.sub)
    sdk = SDK(credentials=account, user_agent_prefix="modelplane-dagster/0.1")
    try:
        token = sdk.get_token_sync(60.0)
    finally:
        sdk.sync_close(5.0)
    # A token from the environment says nothing about its end.
    until = token.expiration or datetime.datetime.now(datetime.UTC) + LIFETIME
    return token.token, until.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["eks"] and len(arguments) == 3:
        token, until = eks_token(arguments[1], arguments[2])
    elif arguments == ["gke"]:
        token, until = gke_token()
    elif arguments == ["nebius"]:
        token, until = nebius_token()
    else:
        sys.stderr.write("usage: kube_token.py eks CLUSTER REGION | gke | nebius\n")
        return 2
    status = {"token": token, "expirationTimestamp": until}
    json.dump({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}, sys.stdout)
    return 0


if __name__ == "__main__":
    # A script's own folder comes first on the path, and its module nebius would hide the SDK of that name.
    sys.path.pop(0)
    sys.exit(main(sys.argv[1:]))
