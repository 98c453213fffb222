"""A certificate for loopback. Clients made with client-go send no token over plain HTTP, so the lab speaks HTTPS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID

_YEARS = 10


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two PEM files; the certificate is its own authority."""

    certificate: Path
    key: Path


def loopback_certificate(folder: Path) -> Certificate:
    """The folder's certificate, made once: kubeconfigs that carry it stay valid over restarts."""
    found = Certificate(folder / "tls.crt", folder / "tls.key")
    if found.certificate.exists() and found.key.exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(found.key, private_pem(key))
    found.certificate.write_bytes(_signed(key).public_bytes(serialization.Encoding.PEM))
    return found


def write_private(path: Path, content: bytes) -> None:
    """Readable by its owner alone from its first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def private_pem(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    """The key as PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signs(*, lists: bool = False) -> x509.KeyUsage:
    """What an authority's key may be used for: to sign certificates and, with `lists`, the lists of revoked ones."""
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=lists,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "modelplane-lab")])
    today = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs(), critical=True)
        .add_extension(subject_key, critical=False)
        # Python's verifier wants an authority key from 3.13 on.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key), critical=False)
        .sign(key, hashes.SHA256())
    )
