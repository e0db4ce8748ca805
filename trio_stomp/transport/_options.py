"""The options of the transport floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class TransportOptions:
    """TLS, and proxies that send a PROXY header."""

    tls_cert: str = option("", "PEM file of the certificate and its chain; empty = no TLS")
    tls_key: str = option("", "PEM file of its private key; empty = the key is in --tls-cert")
    tls: str = option(
        "auto",
        "TLS on --port, if there is a certificate, detected by the first bytes; auto = required "
        "for logins from other machines, which off and optional accept in the clear",
        choices=("auto", "off", "optional", "required"),
    )
    tls_port: int = option(0, "additional port that requires TLS; 0 = none", minimum=0)
    tls_min_version: str = option("1.2", "minimum version of TLS", choices=("1.2", "1.3"))
    tls_client_ca: str = option("", "PEM file of the authorities that sign client certificates")
    tls_client_certificates: str = option(
        "off", "whether clients present a certificate", choices=("off", "optional", "required")
    )
    tls_client_crl: str = option("", "PEM file of revoked client certificates (CRL); empty = none")
    tls_login: str = option(
        "off",
        "user of a client certificate: its common name, or the mapping in --acl-file",
        choices=("off", "common-name", "mapped"),
        live=True,
    )
    proxy_addresses: str = option(
        "",
        "proxies whose connections begin with a PROXY header, as 10.0.0.0/8,127.0.0.1,unix; "
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
            for name in (name for name, is_set in needs.items() if is_set):
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
