// Streams an answer to the terminal over HTTP, with the standard library only:
//
//	go run chat.go [-url URL] [-model MODEL] QUESTION
//
// OPENAI_API_KEY: for a frontend that requires a key.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatRequest struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	MaxTokens     int             `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions map[string]bool `json:"stream_options"`
}

// A server-sent event of a stream. The last one has the usage and no choices.
type chunk struct {
	Choices []struct {
		Delta message `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *apiError `json:"error"` // the stream failed
}

type apiError struct {
	Message string `json:"message"`
}

type client struct {
	url, key string
}

// call sends a request, whose body is JSON unless it is nil, and returns the response's body.
func (c client) call(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var failure struct {
		Error apiError `json:"error"`
	}
	if err := json.NewDecoder(response.Body).Decode(&failure); err != nil {
		return nil, errors.New(response.Status)
	}
	return nil, fmt.Errorf("%s: %s", response.Status, failure.Error.Message)
}

// firstModel returns the name of the first model that the cluster serves.
func (c client) firstModel(ctx context.Context) (string, error) {
	body, err := c.call(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(body).Decode(&models); err != nil {
		return "", err
	}
	if len(models.Data) == 0 {
		return "", errors.New("the cluster serves no model")
	}
	return models.Data[0].ID, nil
}

// chat calls receive with each event of an answer. Cancelling ctx also stops the answer in the cluster.
func (c client) chat(ctx context.Context, request chatRequest, receive func(chunk)) error {
	body, err := c.call(ctx, http.MethodPost, "/chat/completions", request)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data := strings.TrimPrefix(lines.Text(), "data: ")
		if data == lines.Text() {
			continue // the empty line after an event
		}
		if data == "[DONE]" {
			return nil
		}
		var event chunk
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		if event.Error != nil {
			return errors.New(event.Error.Message)
		}
		receive(event)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func run(ctx context.Context) error {
	url := flag.String("url", "http://127.0.0.1:8000/v1", "base URL of the API")
	model := flag.String("model", "", "model to use (default: the first that the cluster serves)")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}

	c := client{strings.TrimSuffix(*url, "/"), os.Getenv("OPENAI_API_KEY")}
	if *model == "" {
		first, err := c.firstModel(ctx)
		if err != nil {
			return err
		}
		*model = first
	}
	request := chatRequest{
		Model:         *model,
		Messages:      []message{{Role: "user", Content: flag.Arg(0)}},
		MaxTokens:     256,
		Stream:        true,
		StreamOptions: map[string]bool{"include_usage": true},
	}
	return c.chat(ctx, request, func(event chunk) {
		for _, choice := range event.Choices {
			fmt.Print(choice.Delta.Content)
		}
		if usage := event.Usage; usage != nil {
			fmt.Printf("\n(%d + %d tokens)\n", usage.PromptTokens, usage.CompletionTokens)
		}
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
