"""The other end of an HTTP/2 connection, which may say anything: frames by hand over a socket.

It knows the RFCs and nothing of Baton's own code.
"""
