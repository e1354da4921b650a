"""Checks that the job's subnets and security groups exist, and have a route to S3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.aws.errors import error_code
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.sagemaker.doctor.account import Account


def check_subnets(account: Account, subnets: Sequence[str]) -> Finding:
    found = _subnets(account, subnets)
    if isinstance(found, Finding):
        return found
    vpcs = {subnet["VpcId"] for subnet in found}
    if len(vpcs) > 1:
        return Finding(
            CheckStatus.FAILED,
            f"the subnets are in several VPCs: {', '.join(sorted(vpcs))}",
            "Name subnets of one VPC.",
        )
    zones = sorted({subnet["AvailabilityZone"] for subnet in found})
    return Finding(CheckStatus.OK, f"in {vpcs.pop()}, {', '.join(zones)}")


def check_security_groups(account: Account, groups: Sequence[str], subnets: Sequence[str]) -> Finding:
    from botocore.exceptions import ClientError

    try:
        found = account.client("ec2").describe_security_groups(GroupIds=list(groups))["SecurityGroups"]
    except ClientError as error:
        return _missing(error, "security group", groups)
    places = _subnets(account, subnets)
    vpcs = set() if isinstance(places, Finding) else {subnet["VpcId"] for subnet in places}
    others = [group["GroupId"] for group in found if vpcs and group["VpcId"] not in vpcs]
    if others:
        return Finding(
            CheckStatus.FAILED,
            f"{', '.join(others)} not in the VPC of the subnets, {', '.join(sorted(vpcs))}",
            "Name security groups of that VPC.",
        )
    return Finding(CheckStatus.OK, ", ".join(group["GroupName"] for group in found))


def check_s3_route(account: Account, subnets: Sequence[str]) -> Finding:
    """Hosts in a VPC have no public address. They reach S3 through an endpoint of the VPC or a NAT gateway."""
    found = _subnets(account, subnets)
    if isinstance(found, Finding):
        return Finding(CheckStatus.UNKNOWN, found.what)
    ec2, vpc = account.client("ec2"), found[0]["VpcId"]
    in_vpc = {"Name": "vpc-id", "Values": [vpc]}
    service = {"Name": "service-name", "Values": [f"com.amazonaws.{account.region}.s3"]}
    endpoints = ec2.describe_vpc_endpoints(Filters=[in_vpc, service])["VpcEndpoints"]
    if any(endpoint.get("VpcEndpointType") == "Interface" for endpoint in endpoints):
        return Finding(CheckStatus.OK, f"{vpc} has an interface endpoint of S3")
    tables = ec2.describe_route_tables(Filters=[in_vpc])["RouteTables"]
    served = {table for endpoint in endpoints for table in endpoint.get("RouteTableIds", [])}
    cut_off = [
        subnet["SubnetId"]
        for subnet in found
        if not ((table := _table_of(subnet["SubnetId"], tables)) and _leads_to_s3(table, served))
    ]
    if not cut_off:
        return Finding(CheckStatus.OK, "through an endpoint or a gateway of the VPC")
    return Finding(
        CheckStatus.FAILED,
        f"there is no route from {', '.join(cut_off)} to S3",
        f"Add a gateway endpoint com.amazonaws.{account.region}.s3 to the route tables of these subnets of {vpc}.",
    )


def _subnets(account: Account, subnets: Sequence[str]) -> list[dict[str, Any]] | Finding:
    from botocore.exceptions import ClientError

    try:
        found: list[dict[str, Any]] = account.client("ec2").describe_subnets(SubnetIds=list(subnets))[
            "Subnets"
        ]
    except ClientError as error:
        return _missing(error, "subnet", subnets)
    return found


def _missing(error: Any, what: str, names: Sequence[str]) -> Finding:
    """The finding for names that do not exist. Other errors are raised again."""
    if not error_code(error).endswith((".NotFound", ".Malformed")):
        raise error
    named = [name for name in names if name in str(error)] or names
    return Finding(
        CheckStatus.FAILED,
        f"there is no {what} {', '.join(named)}",
        f"Check the ids: {what}s belong to one region.",
    )


def _table_of(subnet: str, tables: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The subnet's route table, or the main route table of its VPC."""
    main = None
    for table in tables:
        for association in table.get("Associations", []):
            if association.get("SubnetId") == subnet:
                return table
            main = table if association.get("Main") else main
    return main


def _leads_to_s3(table: dict[str, Any], served: set[str]) -> bool:
    if table["RouteTableId"] in served:
        return True
    # an internet gateway does not work for hosts without a public address
    return any(
        route.get("DestinationCidrBlock") == "0.0.0.0/0"
        and any(
            route.get(by) for by in ("NatGatewayId", "TransitGatewayId", "InstanceId", "NetworkInterfaceId")
        )
        for route in table.get("Routes", [])
    )
