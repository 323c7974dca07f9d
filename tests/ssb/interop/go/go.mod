module echo

go 1.20

require (
	github.com/ssbc/go-netwrap v0.1.5-0.20221019160355-cd323bb2e29d
	github.com/ssbc/go-secretstream v1.2.11-0.20221111164233-4b41f899f844
)

require (
	filippo.io/edwards25519 v1.0.0-rc.1 // indirect
	github.com/pkg/errors v0.8.1 // indirect
	golang.org/x/crypto v0.0.0-20210616213533-5ff15b29337e // indirect
	golang.org/x/sys v0.0.0-20210615035016-665e8c7367d1 // indirect
)
