"""What the transport floor lets an operator choose."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class TransportOptions:
    """TLS, and proxies that tell whom they speak for."""

    tls_cert: str = option("", "PEM file of the certificate and its chain; empty = no TLS")
    tls_key: str = option("", "PEM file of its private key; empty = it is in --tls-cert")
    tls: str = option(
        "auto",
        "whether --port takes TLS, once there is a certificate; the first bytes tell; auto = and"
        " logins from other machines must use it, which off and optional take in the clear",
        choices=("auto", "off", "optional", "required"),
    )
    tls_port: int = option(0, "one more port, where TLS is required; 0 = none", minimum=0)
    tls_min_version: str = option("1.2", "oldest version of TLS", choices=("1.2", "1.3"))
    tls_client_ca: str = option("", "PEM file of those who sign the certificates of clients")
    tls_client_certificates: str = option(
        "off", "whether clients show a certificate", choices=("off", "optional", "required")
    )
    tls_client_crl: str = option(
        "", "PEM file of the certificates of clients that were revoked (CRL); empty = none"
    )
    tls_login: str = option(
        "off",
        "who a client with a certificate is: its common name, or what --acl-file maps it to",
        choices=("off", "common-name", "mapped"),
        live=True,
    )
    proxy_addresses: str = option(
        "",
        "proxies that begin each connection with a PROXY header, as 10.0.0.0/8,127.0.0.1,unix; "
        "empty = none",
    )

    def __attrs_post_init__(self) -> None:
        if self.tls_port > 65_535:
            raise ValueError(f"tls_port is {self.tls_port}, but must be 65535 or less")
        if not self.tls_cert:
            needs = {
                "tls_key": bool(self.tls_key),
                "tls": self.tls == "required",
                "tls_port": bool(self.tls_port),
                "tls_client_ca": bool(self.tls_client_ca),
                "tls_client_certificates": self.tls_client_certificates != "off",
                "tls_client_crl": bool(self.tls_client_crl),
            }
            for name in (name for name, is_told in needs.items() if is_told):
                raise ValueError(f"{name} needs a certificate: give tls_cert, too")
        if self.tls_client_ca and self.tls_client_certificates == "off":
            raise ValueError(
                "tls_client_ca needs tls_client_certificates to be optional or required"
            )
        if self.tls_client_certificates != "off" and not self.tls_client_ca:
            raise ValueError(
                f"tls_client_certificates is {self.tls_client_certificates!r}, but needs"
                " tls_client_ca, the file of those who sign them"
            )
        if self.tls_client_crl and self.tls_client_certificates == "off":
            raise ValueError(
                "tls_client_crl needs tls_client_certificates to be optional or required"
            )
        if self.tls_login != "off" and self.tls_client_certificates == "off":
            raise ValueError(
                f"tls_login is {self.tls_login!r}, but needs tls_client_certificates to be"
                " optional or required"
            )
