"""Long-lived calls: a bounded send queue, and the client's and the server's side around it."""
