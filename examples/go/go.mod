module baton-chat-example

go 1.19
