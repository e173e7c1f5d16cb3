"""What a server tells of itself: its model's name, its counters."""

from __future__ import annotations

import httpx

from stretto.roles.client.address import NOTHING_LISTENS, Address


class Unreachable(Exception):
    """The server does not answer as one should; the message says what to do."""


class Server:
    """The few questions that are not part of the load."""

    def __init__(self, address: Address, api_key: str | None = None) -> None:
        self._address = address
        self._http = httpx.Client(
            base_url=address.http,
            transport=httpx.HTTPTransport(uds=address.uds) if address.uds else None,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            trust_env=not address.is_local,
            timeout=30,
        )

    def model(self) -> str:
        """Name of the first model it lists. Raises `Unreachable`."""
        try:
            answer = self._http.get("/v1/models")
            answer.raise_for_status()
            name: str = answer.json()["data"][0]["id"]
        except httpx.ConnectError:
            raise Unreachable(NOTHING_LISTENS.format(self._address)) from None
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise Unreachable(f"{self._address} does not list its models at /v1/models: {error}") from None
        return name

    def counters(self) -> dict[str, float]:
        """Samples of `/metrics`, summed over labels; empty where there are none."""
        try:
            answer = self._http.get("/metrics")
        except httpx.HTTPError:
            return {}
        return counters(answer.text) if answer.status_code == httpx.codes.OK else {}

    def close(self) -> None:
        self._http.close()


def counters(exposition: str) -> dict[str, float]:
    """Samples in Prometheus' text format, by name, summed over labels."""
    values: dict[str, float] = {}
    for line in exposition.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
            values[name] = values.get(name, 0.0) + float(rest.rpartition("} ")[2].split()[0])
    return values
