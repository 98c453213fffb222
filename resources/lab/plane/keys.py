"""A control plane's own authority, its server certificate, its service account key, and client certificates."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from resources.lab.api.certificates import private_pem, signs, write_private

_DAYS = 3650
_SERVICE = "10.0.0.1"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes

    def user(self) -> dict[str, str]:
        """As a kubeconfig's user holds it."""
        return {
            "client-certificate-data": base64.b64encode(self.certificate).decode(),
            "client-key-data": base64.b64encode(self.key).decode(),
        }


class Authority:
    """The authority of one folder, made once; its files are `ca.crt` and `ca.key` (mode 600)."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ca.crt"
        key_file = folder / "ca.key"
        if not (self.file.exists() and key_file.exists()):
            key = ec.generate_private_key(ec.SECP256R1())
            write_private(key_file, private_pem(key))
            self.file.write_bytes(_root(key).public_bytes(serialization.Encoding.PEM))
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} holds no elliptic curve key")
        self._key = loaded
        self._certificate = x509.load_pem_x509_certificate(self.file.read_bytes())

    @property
    def certificate(self) -> bytes:
        return self.file.read_bytes()

    def server(self) -> Pair:
        names = [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address(_SERVICE)),
        ]
        return self._issue("kube-apiserver", (), ExtendedKeyUsageOID.SERVER_AUTH, timedelta(days=_DAYS), names)

    def client(self, user: str, groups: Iterable[str] = (), *, valid: timedelta = timedelta(days=1)) -> Pair:
        """For one user. A negative `valid` gives one that has expired already."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, valid, [])

    def _issue(
        self,
        user: str,
        groups: Iterable[str],
        usage: x509.ObjectIdentifier,
        valid: timedelta,
        names: list[x509.GeneralName],
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
        builder = _builder([*subject, x509.NameAttribute(NameOID.COMMON_NAME, user)], key, valid)
        builder = builder.issuer_name(self._certificate.subject)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), private_pem(key))


def service_account_keys() -> Pair:
    """`certificate` holds the public key. RSA, for the controller manager signs nothing with smaller kinds."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(public, private_pem(key))


def _root(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, "modelplane-lab-plane")]
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(subject, key, timedelta(days=_DAYS))
        .issuer_name(x509.Name(subject))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs(lists=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: list[x509.NameAttribute[str]], key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + valid)
    )
