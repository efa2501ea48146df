package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server is a Component that serves HTTP on address (port 0: a free one) and
// logs "listening" with the attribute address once connections are accepted.
// Told to stop, it lets requests end within drain, then closes them.
func Server(name, address string, h http.Handler, drain time.Duration, log *slog.Logger) Component {
	return Component{Name: name, Run: func(ctx context.Context, ready func()) error {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		// Bounds against slow or silent clients; a request may wait for a worker's check of a
		// cluster, 10 s at most, so that writes get more than that.
		srv := &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       30 * time.Second,
			WriteTimeout:      60 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		log.Info("listening", slog.String("server", name), slog.String("address", ln.Addr().String()))
		ready()
		select {
		case err := <-served:
			return fmt.Errorf("serve: %w", err)
		case <-ctx.Done():
		}
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if err := srv.Shutdown(sctx); err != nil {
			log.Warn("requests cut off at shutdown", slog.String("server", name), slog.Duration("waited", drain))
			err = srv.Close()
			if err != nil {
				return fmt.Errorf("close server: %w", err)
			}
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	}}
}
