"""The other side of an HTTP/2 connection, free to send anything: frames by hand on a socket.

It implements the RFCs and uses none of Baton's own code.
"""
