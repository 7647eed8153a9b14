"""Webhooks: events that a project's endpoints receive over HTTP, at least once, with one id.

- An *endpoint* is a URL of a project, with the types of events that it receives, and a secret.
- An *event* is written with the statement or transaction that causes it, as one *delivery* for each
  endpoint that receives its type. Without endpoints, nothing is written.
- Every frontend delivers. It claims deliveries that are due, a bounded number per endpoint, by
  moving `due` on: should it die, they are due again. No frontend leads.
- Each *attempt* is in a log. A delivery ends with the first response of status 2xx, or is given up
  after a day of attempts with growing random delays.
"""
