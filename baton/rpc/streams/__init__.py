"""Long-lived calls: a bounded send queue, and the client and server sides around it."""
