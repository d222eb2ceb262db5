module installer.karmada.io/build

go 1.25.7
require github.com/karmada-io/karmada v1.17.1
